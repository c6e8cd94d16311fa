"""What a run leaves on the host: processes, sockets, ports, shared memory, unfinished files."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

_PATIENCE_S = 10.0
_POLL_S = 0.2
LISTENS = "0A"  # the state in /proc/net/tcp
_SOCKET = re.compile(r"socket:\[(\d+)\]")


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
    """A count of what a run has left behind, without anything of other runs on the host.

    Processes, sockets and ports are those that were seen below the run, shared memory and files
    those that were not there before.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = self._files()
        self._pids: dict[int, str] = {}
        self._sockets: set[str] = set()

    def note_processes(self, pid: int) -> None:
        """Note the processes that are below a process now, and their sockets."""
        for below in descendants(pid):
            self._pids.setdefault(below, _start_of(below))
            self._sockets.update(sockets_of(below))

    def left(self) -> dict[str, list[str]]:
        """Return everything that is left after ten seconds, by kind."""
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
        found = {
            "processes": alive,
            "sockets": [name for inode, name in _named_sockets() if inode in self._sockets],
            "files": sorted(self._files() - self._before),
        }
        return {kind: names for kind, names in found.items() if names}

    def _files(self) -> set[str]:
        return {*_names(Path("/dev/shm"), "waferstream*"), *_names(self._folder, "**/*.partial*")}


def _start_of(pid: int) -> str:
    """Return the start time of a process, which tells it from a later one of the same number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def sockets_of(pid: int) -> Iterator[str]:
    """Yield the inodes of the sockets of a process."""
    try:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            if found := _SOCKET.fullmatch(str(path.readlink())):
                yield found[1]
    except OSError:  # it has ended
        return


def _named_sockets() -> Iterator[tuple[str, str]]:
    """Yield inode and name of the sockets in the abstract name space, and of listening ports."""
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) == 8 and fields[7].startswith("@"):
            yield fields[6], fields[7]
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else ():
            fields = line.split()
            if fields[3] == LISTENS:
                yield fields[9], f"port {int(fields[1].rpartition(':')[2], 16)}"


def _names(folder: Path, pattern: str) -> Iterator[str]:
    own = os.getuid()
    for path in folder.glob(pattern):
        try:
            if path.stat().st_uid == own:
                yield str(path)
        except OSError:
            continue
