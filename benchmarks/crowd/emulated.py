"""A management whose jobs are emulated: they take time of a fast clock, and no processor.

    python -m benchmarks.crowd.emulated FOLDER SYSTEMS GROUPS QUEUED FASTER

It prints its address and token, keeps so many jobs in the queue, and ends at SIGTERM. Each turn
lets every running job tell its progress, whose loss is the time of the host, so that followers know
how old it is. At its end it prints the seconds that its turns took.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from waferstream.management.door.authentication import Authentication
from waferstream.management.door.doors import Doors, DoorSettings
from waferstream.management.launch.launcher import Ended, Launch, Running, State
from waferstream.management.manager.administration import add_user
from waferstream.management.manager.folders import Folders
from waferstream.management.manager.launches import Launches
from waferstream.management.manager.manager import Manager
from waferstream.management.manager.run_tokens import workflow_of
from waferstream.management.model.event import Progressed
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.operations import Caller, ListWorkflows, NoteFact, Submit
from waferstream.management.model.workflow import Progress, Stage, Submission, Workflow
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store

_TURN_S = 0.5
_SHORTEST_S, _LONGEST_S = 60.0, 600.0
_MOST_CSX = 32
_ROOT = Caller(user="root", role="administrator")


class EmulatedLauncher:
    """Launches that end after a time of a clock; nothing runs."""

    runtime_address = "local"

    def __init__(self, clock: FastClock, random: Random) -> None:
        self._clock, self._random = clock, random
        self._ends_s: dict[str, float] = {}

    def start(self, launch: Launch) -> None:
        took_s = self._random.uniform(_SHORTEST_S, _LONGEST_S)
        self._ends_s.setdefault(launch.id, self._clock() + took_s)

    def ask_to_end(self, id: str) -> None:
        self._ends_s[id] = self._clock()

    kill = ask_to_end

    def states(self) -> Mapping[str, State]:
        now_s = self._clock()
        return {
            id: Running() if now_s < end_s else Ended(0, "") for id, end_s in self._ends_s.items()
        }

    def forget(self, id: str) -> None:
        del self._ends_s[id]

    def read_log(self, _id: str, _offset: int, _limit: int) -> bytes:
        return b""

    def close(self) -> None:
        """Leave everything as it is."""


class FastClock:
    """Seconds since 1970, which pass faster from now on."""

    def __init__(self, faster: float) -> None:
        self._faster, self._start_s = faster, time.time()

    def __call__(self) -> float:
        return self._start_s + self._faster * (time.time() - self._start_s)


class Load:
    """Jobs of some users, so many of them in the queue."""

    def __init__(self, manager: Manager, queued: int, random: Random) -> None:
        self._manager, self._queued, self._random = manager, queued, random
        self.turns_s: list[float] = []

    def turn(self) -> None:
        """Let the manager take a turn, running jobs tell their progress, and others come."""
        start_s = time.perf_counter()
        self._manager.tick()
        self.turns_s.append(time.perf_counter() - start_s)
        workflows = self._manager.do(_ROOT, ListWorkflows())
        for workflow in workflows:
            if workflow.stage is Stage.RUNNING:
                self._tell(workflow)
        waiting = sum(workflow.stage is not Stage.RUNNING for workflow in workflows)
        for _ in range(self._queued - waiting):
            self._submit()

    def _tell(self, workflow: Workflow) -> None:
        step = 0 if workflow.progress is None else workflow.progress.step + 1
        progress = Progress(step=step, total_steps=10_000, loss=time.time())
        run = Caller(user=workflow.name, role="run", workflow=workflow.name)
        self._manager.do(run, NoteFact(name=workflow.name, fact=Progressed(progress=progress)))

    def _submit(self) -> None:
        num_csx = self._random.randint(1, _MOST_CSX)
        submission = Submission(
            words=("--params", "params.yaml"), num_csx=num_csx, min_num_csx=1, is_detached=True
        )
        user = Caller(user=f"user-{self._random.randrange(50)}")
        self._manager.do(user, Submit(submission=submission))


def main(words: Sequence[str]) -> None:
    """Serve until SIGTERM."""
    folder, systems, groups, queued, faster = words
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    store = open_store(Path(folder) / "store.sqlite")
    token = _administrator(store, int(systems), int(groups))
    clock, random = FastClock(float(faster)), Random(1)
    launches = Launches(EmulatedLauncher(clock, random), Folders(Path(folder)))
    manager = Manager(store, launches, clock)
    load = Load(manager, int(queued), random)
    load.turn()
    authentication = Authentication(store.reading, workflow_of)
    with Doors(manager, authentication, DoorSettings()) as doors:
        print(doors.address, token, flush=True)
        while not ended.wait(_TURN_S):
            load.turn()
    store.close()
    print(json.dumps(load.turns_s), flush=True)


def _administrator(store: Store, systems: int, groups: int) -> str:
    """Keep an inventory and one user; return that one's token."""
    with store.change() as changes:
        changes.put_inventory(QueueSpec(systems=systems, memoryx_groups=groups).inventory())
        return add_user(changes, _ROOT, time.time())


if __name__ == "__main__":
    main(sys.argv[1:])
