"""An appliance by hand: a manager, a launcher and a clock that a test leads."""

from __future__ import annotations

from pathlib import Path

from tests.support.host.launcher import HandLauncher
from waferstream.management.manager.folders import Folders
from waferstream.management.manager.launches import Launches
from waferstream.management.manager.manager import Manager
from waferstream.management.model import event
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.operations import (
    Caller,
    NoteFact,
    ReadEvents,
    ReadWorkflow,
    Submit,
)
from waferstream.management.model.workflow import (
    Submission,
    Workflow,
)
from waferstream.management.store.opening import open_store

ANN, BOB, ROOT = (
    Caller(user="ann", groups=("ml",)),
    Caller(user="bob"),
    Caller(user="root", role="administrator"),
)


class Appliance:
    """A manager of two systems and one group, a launcher by hand, and a clock by hand."""

    def __init__(self, folder: Path, most_bytes: int | None = None) -> None:
        self.store = open_store(folder / "store.sqlite")
        self.launcher = HandLauncher()
        self.now_s = 1e9
        self.folders = Folders(folder, most_bytes)
        with self.store.change() as changes:
            changes.put_inventory(QueueSpec(systems=2, memoryx_groups=1).inventory())
        self.start()

    def start(self) -> None:
        """Start the manager, again after one that was killed."""
        launches = Launches(self.launcher, self.folders)
        self.manager = Manager(self.store, launches, lambda: self.now_s)

    def submit(self, caller: Caller = ANN, num_csx: int = 2, **fields: object) -> Workflow:
        asked = {"words": ("--params", "p.yaml"), "num_csx": num_csx, "is_detached": True, **fields}
        submission = Submission.model_validate(asked)
        return self.manager.do(caller, Submit(submission=submission))

    def turn(self, seconds: float = 1.0) -> None:
        self.now_s += seconds
        self.manager.tick()

    def read(self, workflow: Workflow) -> Workflow:
        return self.manager.do(ROOT, ReadWorkflow(name=workflow.name))

    def events(self, workflow: Workflow, kind: str) -> list[event.Event]:
        found = self.manager.do(ROOT, ReadEvents(name=workflow.name))
        return [each for each in found if each.fact.kind == kind]

    def say(self, workflow: Workflow, fact: event.Fact) -> None:
        """Let the run of a workflow tell something."""
        run = Caller(user=workflow.name, role="run", workflow=workflow.name)
        self.manager.do(run, NoteFact(name=workflow.name, fact=fact))

    def end(self, workflow: Workflow, exit_code: int | None = 0) -> None:
        """Let the newest process of a workflow end."""
        attempt = self.read(workflow).attempt
        self.launcher.end(f"{workflow.name}-{attempt}", exit_code)
        self.turn()
