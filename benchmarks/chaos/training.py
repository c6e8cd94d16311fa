"""One training as a user does it: run.py, and the same command again until it has finished."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.chaos.leftovers import Census, descendants, title_of
from waferstream.core.errors import ApplianceError
from waferstream.core.events import ClusterReplaced, Recovered, TrainProgress

_ROOT = Path(__file__).resolve().parents[2]
_DIGEST = re.compile(r"Weights SHA-256: (\w+)")
_ERROR = re.compile(r"^Error: .*|^\s+(?:where|value): .*|.*\[[a-z-]+\]$")
_NOTE_S = 0.5

Blow = Literal["kill", "stop", "starve"]

OUTSIDE = {"driver": "run.py", "raylet": "raylet/raylet", "gcs_server": "gcs/gcs_server"}
"""Processes that are no roles, by a part of their command line; they are hit from outside."""

OF_RAY: tuple[Blow, ...] = ("kill", "stop", "starve")
"""What happens to Ray's processes: SIGKILL, SIGSTOP for good, and too little processor time."""

_STARVED_S, _TURN_S, _SHARE = 4.0, 0.1, 0.05
"""A starved process gets this share of its turns for a while."""


@dataclass(frozen=True)
class Kill:
    """A process that is killed, stopped or starved when a step has been reported."""

    target: str
    step: int
    kind: Blow = "kill"


@dataclass
class Course:
    """What happened in a training, in seconds since 1970.

    ``reported`` are the steps that were reported, ``kills`` the times at which processes were
    killed from outside, ``starts`` those of the commands; ``errors`` is what failed commands said.
    """

    reported: list[tuple[float, int]] = field(default_factory=list)
    kills: list[tuple[float, Kill]] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    num_recoveries: int = 0
    num_repeated_steps: int = 0
    digest: str = ""


class Training:
    """A training whose command is started again until it has finished.

    Args:
        flags: The flags of run.py.
        kills: What is killed from outside.
        census: Where the processes of the runs are noted.
        most_starts: Give up after so many commands.
    """

    def __init__(
        self, flags: Sequence[str], kills: Sequence[Kill], census: Census, most_starts: int
    ) -> None:
        self._command = [sys.executable, str(_ROOT / "run.py"), *flags]
        self._kills = sorted(kills, key=lambda kill: kill.step)
        self._census = census
        self._most_starts = most_starts
        self.course = Course()

    def run(self) -> Course:
        """Return the course of the whole training.

        Raises:
            ApplianceError: The command failed too often.
        """
        while not self.course.digest:
            if len(self.course.starts) == self._most_starts:
                raise ApplianceError(
                    f"the training did not end within {self._most_starts} starts",
                    code="training-given-up",
                    value="\n".join(self.course.log[-40:]),
                )
            self._start()
        return self.course

    def _start(self) -> None:
        course = self.course
        course.starts.append(time.time())
        over = threading.Event()
        with subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=_ROOT
        ) as process:
            noting = threading.Thread(target=self._note_processes, args=(process.pid, over))
            noting.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    self._take(line.rstrip(), process.pid)
            finally:
                process.kill()  # first: a second Ctrl-C may end the rest of this block
                over.set()
                noting.join()

    def _note_processes(self, pid: int, over: threading.Event) -> None:
        while not over.wait(_NOTE_S):
            self._census.note_processes(pid)

    def _take(self, line: str, pid: int) -> None:
        course, now_s = self.course, time.time()
        course.log.append(f"{now_s:.2f} {line}")
        if found := TrainProgress.PATTERN.search(line):
            step = int(found["step"])
            before = course.reported[-1][1] if course.reported else 0
            course.num_repeated_steps += max(0, before - step + 1)  # after a start of the command
            course.reported.append((now_s, step))
            self._strike(step, pid)
        elif found := ClusterReplaced.PATTERN.search(line):
            course.num_recoveries += 1
            course.num_repeated_steps += int(found["first"]) - int(found["step"]) - 1
        elif Recovered.PATTERN.search(line):
            course.num_recoveries += 1
            course.num_repeated_steps += 1
        elif found := _DIGEST.search(line):
            course.digest = found[1]
        elif _ERROR.match(line):
            course.errors.append(line.strip())

    def _strike(self, step: int, pid: int) -> None:
        """Hit what is due; a process that has just been killed gets the next hit in its turn."""
        if self._kills and self._kills[0].step <= step:
            kill = self._kills.pop(0)
            part = OUTSIDE[kill.target]
            for candidate in (pid, *descendants(pid)):
                if part in title_of(candidate):
                    self.course.kills.append((time.time(), kill))
                    _hit(candidate, kill.kind)
                    return


def _hit(pid: int, kind: Blow) -> None:
    if kind == "starve":
        threading.Thread(target=_starve, args=(pid,), daemon=True).start()
    else:
        os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)


def _starve(pid: int) -> None:
    """Let a process run for a small share of the time, as beside very much other work."""
    until_s = time.monotonic() + _STARVED_S
    with suppress(ProcessLookupError):  # it has ended meanwhile
        while time.monotonic() < until_s:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(_TURN_S * (1 - _SHARE))
            os.kill(pid, signal.SIGCONT)
            time.sleep(_TURN_S * _SHARE)
