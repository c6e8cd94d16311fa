"""What a run leaves on the host: processes, sockets, shared memory, unfinished files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

_PATIENCE_S = 10.0
_POLL_S = 0.2
_SOCKET_PREFIX = "@waferstream/"

Leftovers = Mapping[str, frozenset[str]]
"""What was found, by kind."""


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes below a process."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = children.read_text().split()
        except OSError:
            continue
        for child in map(int, found):
            yield child
            yield from descendants(child)


def title_of(pid: int) -> str:
    """Return the command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


class Census:
    """Counts what is there before and after a run; only what belongs to the run is counted.

    Processes are those that were seen below it; whatever else is there may belong to others.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = self._look()
        self._pids: dict[int, str] = {}

    def note_processes(self, pid: int) -> None:
        """Note the processes that are below a process now."""
        for below in descendants(pid):
            self._pids.setdefault(below, _start_of(below))

    def left(self) -> dict[str, list[str]]:
        """Return what is there that was not before, after it had ten seconds to end."""
        deadline = time.monotonic() + _PATIENCE_S
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return found

    def _left(self) -> dict[str, list[str]]:
        alive = [
            f"{pid} {title_of(pid)}"
            for pid, start in self._pids.items()
            if start and _start_of(pid) == start
        ]
        now = self._look()
        new = {kind: sorted(names - self._before[kind]) for kind, names in now.items()}
        return {kind: names for kind, names in {"processes": alive, **new}.items() if names}

    def _look(self) -> dict[str, frozenset[str]]:
        return {
            "sockets": frozenset(_sockets()),
            "shared memory": frozenset(_names(Path("/dev/shm"), "waferstream*")),
            "partial files": frozenset(_names(self._folder, "**/*.partial*")),
        }


def _start_of(pid: int) -> str:
    """Return the start time of a process, which tells it from a later one of the same number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _sockets() -> Iterator[str]:
    """Yield the names of our sockets in the abstract name space that this user has."""
    for line in Path("/proc/net/unix").read_text().splitlines():
        name = line.rpartition(" ")[2]
        if name.startswith(_SOCKET_PREFIX):
            yield name


def _names(folder: Path, pattern: str) -> Iterator[str]:
    own = os.getuid()
    for path in folder.glob(pattern):
        try:
            if path.stat().st_uid == own:
                yield str(path)
        except OSError:
            continue
