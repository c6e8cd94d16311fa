"""The processes of Ray that this process has started: which has died, and which is stopped.

A stopped process (SIGSTOP) answers nobody, and calls of Ray wait for it without a limit. So a
thread looks at their states, and ends one that stays stopped: then it is one that has died, for all
that wait. Before a call that Ray would not give up, ``lost_process`` waits for this decision.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray._private import worker

from appliance.health.pulse import STOPPED, state_of
from appliance.ray.connection.address import answers

_LOOK_S = 0.2
_AGENTS = (b"ray::DashboardAgent", b"ray::RuntimeEnvAgent")
"""Titles of what a raylet starts and cannot do without; it ends with them."""


class StoppedProcesses:
    """Ends processes that are stopped for longer than ``limit_s``; a thread looks at them.

    ``ended`` are the numbers of those that it has ended.
    """

    def __init__(self) -> None:
        self.limit_s = 5.0
        self.ended: set[int] = set()
        self._started: list[subprocess.Popen[bytes]] = []
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Look at a process, and at the agents that it starts, until it ends."""
        with self._changing:
            if process not in self._started:
                self._started.append(process)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="ray-watch", daemon=True)
                self._thread.start()

    def _look(self) -> None:
        stopped_s: dict[int, float] = {}  # for how long a process has been stopped
        before_s = time.monotonic()
        while self._is_needed():
            # A thread that was itself held up must not take its own absence for that of others.
            elapsed_s = min(time.monotonic() - before_s, 2 * _LOOK_S)
            before_s = time.monotonic()
            stopped = {pid for process in list(self._started) for pid in stopped_of(process.pid)}
            stopped_s = {pid: stopped_s.get(pid, 0.0) + elapsed_s for pid in stopped}
            for pid in [pid for pid in stopped if stopped_s[pid] >= self.limit_s]:
                self.ended.add(pid)
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)

    def _is_needed(self) -> bool:
        """Forget what has ended; return whether anything is left to look at."""
        with self._changing:
            self._started = [each for each in self._started if each.poll() is None]
            if not self._started:
                self._thread = None
            return bool(self._started)


STOPPED_PROCESSES = StoppedProcesses()


def stopped_of(pid: int) -> Iterator[int]:
    """Yield a process and the agents of Ray below it, those of them that are stopped."""
    if state_of(pid) == STOPPED:
        yield pid
    with suppress(OSError):  # the process has ended, or one of its threads
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                with suppress(OSError):  # the child has ended
                    is_agent = Path(f"/proc/{child}/cmdline").read_bytes().startswith(_AGENTS)
                    if is_agent and state_of(child) == STOPPED:
                        yield child


def lost_process() -> str | None:
    """Return the name of a process of Ray that has died, None if all live.

    These are the processes of an instance that was started here, or the head of a joined cluster.
    While one of them is stopped this waits: it goes on, or it is ended.
    """
    node: Any = worker._global_node
    if not ray.is_initialized():
        return None
    for name in ("gcs_server", "raylet"):
        for info in node.all_processes.get(name, ()):
            while info.process.poll() is None and _ends_or_stands(info.process.pid):
                time.sleep(_LOOK_S)
            if info.process.poll() is not None:
                return name
    if not node.all_processes and not answers(node.gcs_address):
        return "gcs_server"
    return None


def _ends_or_stands(pid: int) -> bool:
    """Return whether a process or an agent of it is stopped, or was killed and still ends."""
    return pid in STOPPED_PROCESSES.ended or any(stopped_of(pid))


def why_lost() -> str:
    """Return the known part of the reason for which a process was lost."""
    limit_s = STOPPED_PROCESSES.limit_s
    was_stopped = f"it was stopped (SIGSTOP) for {limit_s:g} s, and was ended"
    node: Any = worker._global_node
    own = {info.process.pid for infos in node.all_processes.values() for info in infos}
    return was_stopped if own & STOPPED_PROCESSES.ended else "it has ended"
