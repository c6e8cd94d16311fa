"""A management with doors and pages over a store that a test has filled: nothing is launched."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from swarmx.topology import Tree
from waferstream.core.secrets import digest_of
from waferstream.management.door.authentication import Authentication
from waferstream.management.door.doors import Doors, DoorSettings
from waferstream.management.manager.folders import Folders
from waferstream.management.manager.manager import Manager
from waferstream.management.model import event as happens
from waferstream.management.model.event import Fact
from waferstream.management.model.inventory import QueueSpec, Session
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import Caller, NoteTelemetry
from waferstream.management.model.telemetry import Sample, Telemetry
from waferstream.management.model.workflow import Placement, Prediction, Progress, Submission
from waferstream.management.store.changes import Changes
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store
from waferstream.management.web.router import pages_router

EVIL = "<script>document.title='bad'</script>"
RUNNING, BREATHING, ENDED, WAITING = "wflow-running", "wflow-breathing", "wflow-ended", "wflow-next"
_BEGIN_S = time.monotonic()

TOKENS = {"root": "wst-root", "ann": "wst-ann", "bob": "wst-bob"}
"""Tokens of an administrator and of two users."""


@dataclass(frozen=True)
class Seeded:
    """A management, and what stands behind it.

    Attributes:
        url: Of its pages.
        manager: Does what is asked for.
        store: What has happened.
        folders: Files of its workflows.
    """

    url: str
    manager: Manager
    store: Store
    folders: Folders

    def note(self, workflow: str, fact: Fact) -> None:
        """Let something happen to a workflow."""
        with self.store.change() as changes:
            changes.note(workflow, fact, time.time())

    def tell(self, workflow: str, num_systems: int) -> None:
        """Let a run tell its numbers."""
        run = Caller(user=workflow, role="run", workflow=workflow)
        told = telemetry(num_systems)
        self.manager.do(run, NoteTelemetry(name=workflow, telemetry=told))


class _NoLaunches:
    """What a manager needs of launches, without a process."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders

    def note_ends(self, *_: object) -> None:
        """Note nothing: no process ends."""

    def follow(self, *_: object) -> None:
        """Launch nothing."""


@contextmanager
def seeded(folder: Path, note: str = EVIL) -> Iterator[Seeded]:
    """Run a management in which workflows run, wait and have ended; one is labelled a note."""
    store = open_store(folder / "store.sqlite")
    folders = Folders(folder / "files")
    manager = Manager(store, _NoLaunches(folders))  # type: ignore[arg-type]
    with store.change() as changes:
        changes.put_inventory(QueueSpec(systems=8, memoryx_groups=3).inventory())
        changes.put_session(Session(name="team", systems=1, groups=1, users=("ann",)))
        for user, token in TOKENS.items():
            role = "administrator" if user == "root" else "user"
            changes.put_user(Caller.model_validate({"user": user, "role": role}))
            changes.add_token(digest_of(token), user, time.time())
        _fill(changes, time.time(), note)
    settings = DoorSettings(routers=(pages_router,))
    authentication = Authentication(store.reading, lambda _: None)
    try:
        with Doors(manager, authentication, settings) as doors:
            manager.tick()
            found = Seeded(doors.url, manager, store, folders)
            found.tell(BREATHING, 4)
            yield found
    finally:
        store.close()


def telemetry(num_systems: int) -> Telemetry:
    """Return what a run on some systems may tell."""
    tree = Tree(num_systems, 4)
    systems = [f"csx-{index}" for index in range(num_systems)]
    causes = {"compute": 61.0, "overhead": 20.0, "weights": 9.0, "input": 2.0, "reduce": 8.0}
    age_s = 1.0 + time.monotonic() - _BEGIN_S  # of sums, which grow
    of_run = {"step": 400, "last_step": 1000, "loss": 3.2, "energy_joules_total": 9e6 * age_s}
    rates = {"measured_samples_per_second": 31.0, "emulated_samples_per_second": 2900.0}
    numbers: list[tuple[str, float, *tuple[str, ...]]] = [*{**of_run, **rates}.items()]
    for name in ("iteration", "cross_iteration", "backward_iteration"):
        numbers.append((f"{name}_seconds", 0.02, "wgt-0"))
    for role in ("wgt-0", "wgt-1", *(switch.name for switch in tree.switches), *systems):
        numbers.append(("utilisation_ratio", 0.61 if role in systems else 0.35, role))
        numbers.append(("bandwidth_bytes_per_second", 2.3e10, role, "down"))
    for role in systems:
        numbers.append(("power_watts", 22_800.0, role))
        for name, spent_s in causes.items():
            numbers.append(("role_seconds_total", spent_s * age_s, role, name))
    samples = (Sample(metric=name, value=value, labels=tuple(of)) for name, value, *of in numbers)
    return Telemetry(samples=tuple(samples))


def _fill(changes: Changes, now_s: float, note: str) -> None:
    """Write the last hour: one job ended, one shrank from 8 systems to 4, another took two."""
    _submit(changes, ENDED, "bob", now_s - 3000, num_csx=4)
    _place(changes, ENDED, range(4), 0, now_s - 2900)
    changes.note(ENDED, happens.Ended(result=Phase.SUCCEEDED), now_s - 1500)
    labels = {"model": "gpt3-1b", "note": note}
    _submit(changes, BREATHING, "ann", now_s - 2000, num_csx=7, min_num_csx=2, labels=labels)
    _place(changes, BREATHING, range(1, 8), 1, now_s - 1400)
    changes.note(BREATHING, happens.Asked(aim="resize"), now_s - 700)
    changes.note(BREATHING, happens.Released(), now_s - 690)
    _place(changes, BREATHING, range(1, 5), 1, now_s - 680)
    for step in range(10, 410, 10):
        loss = 3 + 600 / (step + 90) + 0.1 * (step % 7 - 3) / 7
        progress = Progress(
            step=step, total_steps=1000, loss=loss, samples_per_s=30 + step % 3,
            emulated_samples_per_s=5200.0 if step < 230 else 2900.0, remaining_s=900.0,
        )  # fmt: skip
        changes.note(BREATHING, happens.Progressed(progress=progress), now_s - 1300 + 3 * step)
    _submit(changes, RUNNING, "bob", now_s - 650, num_csx=2)
    _place(changes, RUNNING, (5, 6), 0, now_s - 640)
    progress = Progress(step=30, total_steps=200, loss=2.345, remaining_s=500.0)
    changes.note(RUNNING, happens.Progressed(progress=progress), now_s - 5)
    for index, (user, priority) in enumerate((("bob", 299), ("ann", 299), ("bob", 399))):
        name = f"{WAITING}-{index}"
        _submit(changes, name, user, now_s - 300 + 40 * index, num_csx=2, priority=priority)


def _submit(changes: Changes, name: str, user: str, time_s: float, **asks: object) -> None:
    given: Mapping[str, object] = {"words": ("fit", "--params", "params.yaml"), **asks}
    submission = Submission.model_validate(given)
    changes.note(name, happens.Submitted(user=user, submission=submission), time_s)
    job = "wsjob-" + name.removeprefix("wflow-").ljust(22, "0")[:22]
    changes.note(name, happens.JobCreated(job=job, of="execute"), time_s)
    changes.note(name, happens.Released(reason="it is new"), time_s)
    prediction = Prediction(seconds={1: 4000, 2: 2000, 4: 1000, 8: 500})
    changes.note(name, happens.Predicted(prediction=prediction), time_s)


def _place(
    changes: Changes, name: str, systems: range | tuple[int, ...], group: int, time_s: float
) -> None:
    names = tuple(f"system-{index}" for index in systems)
    placement = Placement(systems=names, group=f"group-{group}")
    changes.note(name, happens.Placed(placement=placement), time_s)
