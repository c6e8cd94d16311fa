"""A management whose schedule resizes or pauses every job at least once, in a process of its own.

    python -m benchmarks.appliance.restless FOLDER PORT SYSTEMS GROUPS

What its schedule decides stands; on top of that each job is ended once, some steps after its start:
every other one is paused, and the others go on with the half of their systems.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from waferstream.management.door.doors import DoorSettings
from waferstream.management.manager import planning
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.schedule.actions import Action, Pause, Resize, Wait
from waferstream.management.schedule.decide import decide
from waferstream.management.schedule.state import Job
from waferstream.management.server import ServerSettings, running

_ENOUGH = 0.9
"""Of a run, what remains at most when it is ended: it has made some steps."""


class Restless:
    """The rule of a schedule that ends every job once.

    Args:
        folder: Keeps the names of those that were ended, for a management that is killed.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ended"
        self._ended = self._path.read_text().split() if self._path.exists() else []

    def decide(self, now_s: float, parts: Any, jobs: Sequence[Job], *rest: Any) -> list[Action]:
        """Return what the schedule decides, and the ends of jobs that had none yet."""
        decided = decide(now_s, parts, jobs, *rest)
        busy = {each.job for each in decided if not isinstance(each, Wait)}
        due = (job for job in jobs if job.holds and job.left <= _ENOUGH and job.name not in busy)
        return [*decided, *(self._end(job) for job in due if job.name not in self._ended)]

    def _end(self, job: Job) -> Action:
        self._ended.append(job.name)
        with self._path.open("a") as file:
            file.write(f"{job.name}\n")
        if len(self._ended) % 2 == 0 and len(job.holds) > 1:
            return Resize(job.name, job.holds[: len(job.holds) // 2])
        return Pause(job.name, "another job comes first")


def main(words: Sequence[str]) -> None:
    """Serve until SIGTERM."""
    folder, port, systems, groups = words
    settings = ServerSettings(
        folder=Path(folder),
        inventory=QueueSpec(systems=int(systems), memoryx_groups=int(groups)).inventory(),
        doors=DoorSettings("127.0.0.1", int(port), 0, None),
    )
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with (
        patch.object(planning, "decide", Restless(Path(folder)).decide),
        running(settings) as server,
    ):
        print(server.doors.address, server.token, flush=True)
        ended.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
