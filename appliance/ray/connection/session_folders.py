"""Folders of private instances of Ray: for their user alone, and removed after their process.

Ray keeps the sockets and logs of an instance in a folder below /tmp/ray, which it lets every user
of the host change, and removes none. A private instance gets a folder that only its user can enter.
The name of a session tells the process that has started it, so that the folder of a start that
failed is known, too. The newest folder of an ended run stays, as the error of that run names log
files in it.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from waferstream.core.errors import ClusterJobInitError
from waferstream.host.user_state import make_private, state_folder

_LONGEST_SOCKET = len("/sockets/plasma_store")
_LONGEST_NAME = len("session_4194304-18446744073709551615-999")
_PATH_BYTES = 107
"""What fits in the address of a Unix socket, before the zero that ends it (unix(7))."""

_SESSION = re.compile(r"session_(\d+)-(\d+)-\d+")
_EVERYBODY_WRITES, _STICKY = 0o002, 0o1000

_numbers = count(1)


def private_folder() -> Path:
    """Return the folder of this user's sessions, as Ray's temporary folder.

    Ray opens it to everybody; the folder around it stays closed.

    Raises:
        ClusterJobInitError: No folder is safe from other users.
    """
    refused = []
    for root in _roots():
        try:
            _check_place(root)
            for folder in (root, root / "ray"):
                make_private(folder)
        except OSError as error:
            refused.append(f"{root}: {error.strerror}")
        else:
            return root / "ray"
    raise ClusterJobInitError(
        "Ray needs a folder that no other user can change",
        code="ray-folder-not-private",
        value="; ".join(refused),
        rule="its own, of mode 700, with a path that leaves room for a socket",
        remedy="set TMPDIR to a short path of a folder of yours",
    )


def new_session() -> str:
    """Return the name of the next session of this process."""
    return f"session_{os.getpid()}-{_start_of(os.getpid())}-{next(_numbers)}"


def remove_ended_sessions(folder: Path, running: str) -> None:
    """Remove the sessions that have ended, but for the newest; ``running`` has not."""
    ended = [path for path in folder.glob("session_*") if path.name != running and _has_ended(path)]
    ended.sort(key=lambda path: path.lstat().st_mtime_ns)
    for path in ended[:-1]:
        shutil.rmtree(path, ignore_errors=True)


def _roots() -> Iterator[Path]:
    """Yield the folders that may hold the sessions, the first choice first."""
    yield Path(tempfile.gettempdir()) / f"waferstream-{os.getuid()}"
    with suppress(FileNotFoundError):
        yield state_folder() / "sessions"


def _check_place(root: Path) -> None:
    """Raise OSError unless sockets fit below a folder, and its name stays with its owner."""
    if len(os.fsencode(root / "ray")) + 1 + _LONGEST_NAME + _LONGEST_SOCKET > _PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, "the path is too long for a socket")
    for place in root.resolve().parents:
        mode = place.stat().st_mode if place.exists() else 0
        if mode & _EVERYBODY_WRITES and not mode & _STICKY:
            raise PermissionError(errno.EPERM, f"any user can replace what is in {place}")


def _has_ended(folder: Path) -> bool:
    """Return whether a folder is that of a session whose process has ended, or uses another."""
    found = _SESSION.fullmatch(folder.name)
    if found is None or folder.is_symlink():
        return False
    pid, start = int(found[1]), found[2]
    return pid == os.getpid() or _start_of(pid) != start


def _start_of(pid: int) -> str:
    """Return the start time of a process, which tells it from a later one of the same number.

    It is field 22 of /proc/PID/stat (proc(5)), empty if there is no such process.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except OSError:
        return ""
