"""Measure a management whose queue is full: how long a turn and a list of all jobs take.

    python -m benchmarks.full_queue --json benchmarks/results/full_queue.json

``--queued`` jobs wait for ``--systems`` systems. Those that run take time of a fast clock and no
processor; as they end, others start and come. A list is what ``waferstream ctl get jobs`` asks for:
from the store to JSON, through gRPC, and to workflows again. Seconds of the processor are those of
both sides, in one process; seconds of the clock show what the load of the host adds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from waferstream.host.files import write_json
from waferstream.management.client.remote import RemoteClient
from waferstream.management.door.authentication import Authentication
from waferstream.management.door.doors import Doors, DoorSettings
from waferstream.management.launch.launcher import Ended, Launch, Running, State
from waferstream.management.manager.administration import add_user
from waferstream.management.manager.folders import Folders
from waferstream.management.manager.launches import Launches
from waferstream.management.manager.manager import Manager
from waferstream.management.manager.run_tokens import workflow_of
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.operations import Caller, ListWorkflows, Submit
from waferstream.management.model.workflow import Stage, Submission
from waferstream.management.store.opening import open_store
from waferstream.reports.benchmark import new_file, new_result, positive

_SHORTEST_S, _LONGEST_S = 60.0, 600.0
_MOST_CSX, _USERS = 32, 50
_FASTER = 60.0
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


def fill(manager: Manager, queued: int, random: Random) -> None:
    """Submit jobs until so many wait."""
    workflows = manager.do(_ROOT, ListWorkflows())
    waiting = sum(workflow.stage is not Stage.RUNNING for workflow in workflows)
    for _ in range(queued - waiting):
        submission = Submission(
            words=("--params", "params.yaml"),
            num_csx=random.randint(1, _MOST_CSX),
            min_num_csx=1,
            is_detached=True,
        )
        user = Caller(user=f"user-{random.randrange(_USERS)}")
        manager.do(user, Submit(submission=submission))


def measure(given: argparse.Namespace, folder: Path) -> dict[str, list[dict[str, float]]]:
    """Take turns and lists; return the seconds of each."""
    clock, random = FastClock(_FASTER), Random(1)
    store = open_store(folder / "store.sqlite")
    with store.change() as changes:
        inventory = QueueSpec(systems=given.systems, memoryx_groups=given.groups).inventory()
        changes.put_inventory(inventory)
        token = add_user(changes, _ROOT, time.time())
    launches = Launches(EmulatedLauncher(clock, random), Folders(folder))
    manager = Manager(store, launches, clock)
    found: dict[str, list[dict[str, float]]] = {"turn": [], "list": []}
    with Doors(manager, Authentication(store.reading, workflow_of), DoorSettings()) as doors:
        client = RemoteClient(doors.address, token)
        for _ in range(given.rounds):
            fill(manager, given.queued, random)
            found["turn"].append(seconds_of(manager.tick))
            found["list"].append(seconds_of(lambda: client.do(ListWorkflows())))
        client.close()
    store.close()
    return found


def seconds_of(work: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of the processor and of the clock that some work takes."""
    start_s, clock_s = time.process_time(), time.perf_counter()
    work()
    return {"processor": time.process_time() - start_s, "clock": time.perf_counter() - clock_s}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark and write its JSON."""
    given = _parse(argv)
    result = new_result("How long do turns and lists take with a full queue?")
    with TemporaryDirectory() as folder:
        found = measure(given, Path(folder))
    medians: dict[str, Any] = {
        work: {kind: median(each[kind] for each in rounds) for kind in rounds[0]}
        for work, rounds in found.items()
    }
    for work, seconds in medians.items():
        for kind, value in seconds.items():
            print(f"{work}: {1e3 * value:.0f} ms of the {kind}")
    if given.json:
        options = {name: value for name, value in vars(given).items() if name != "json"}
        write_json(given.json, {**result, "options": options, "rounds": found, "s": medians})


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--systems", type=positive, default=192, help="default: 192")
    parser.add_argument("--groups", type=positive, default=16, help="default: 16")
    parser.add_argument("--queued", type=positive, default=1000, help="default: 1000")
    parser.add_argument("--rounds", type=positive, default=30, help="turns and lists (default: 30)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
