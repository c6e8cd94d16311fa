"""What a private instance of Ray keeps from other users: its folders, and its token.

Ray keeps the sockets and logs of an instance in a folder below /tmp/ray, which it lets every user
of the host change, and removes none. A private instance gets a folder that only its user can enter.
The name of a session tells the process that has started it, so that the folder of a start that
failed is known, too. The newest folder of an ended run stays, as the error of that run names log
files in it.

Processes of Ray show by a token that they belong together. Whoever has it runs code as the user of
the instance. A private instance gets one of its own, which is in the memory and the environment of
its processes alone. Joined ones share a file in the home folder, which Ray makes readable for all
users.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from ray._raylet import (  # type: ignore[attr-defined]  # its stub leaves both out
    AuthenticationTokenLoader,
    Config,
)

from waferstream.core.errors import ClusterJobInitError
from waferstream.host.user_state import make_private, state_folder

_LONGEST_SOCKET = len("/sockets/plasma_store")
_LONGEST_NAME = len("session_4194304-18446744073709551615-999")
_PATH_BYTES = 107
"""What fits in the address of a Unix socket, before the zero that ends it (unix(7))."""

_SESSION = re.compile(r"session_(\d+)-(\d+)-\d+")
_EVERYBODY_WRITES, _STICKY = 0o002, 0o1000

_SHARED_MEMORY = Path("/dev/shm")
_numbers = count(1)

log = logging.getLogger("waferstream")

_TOKEN_BYTES = 32
_OTHERS = 0o077


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


def check_shared_memory() -> None:
    """Raise ClusterJobInitError where Ray cannot keep its objects: it would try in vain."""
    if not os.access(_SHARED_MEMORY, os.W_OK):
        raise ClusterJobInitError(
            "Ray needs shared memory",
            code="host-without-shared-memory",
            where=str(_SHARED_MEMORY),
            value="read-only" if _SHARED_MEMORY.exists() else "missing",
            remedy="mount a tmpfs there, or run with --local (runtime.kind: local)",
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


@contextmanager
def own_token() -> Iterator[None]:
    """Give this process, and those that it starts in the block, a new token."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(_TOKEN_BYTES)}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    _read_again()
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if value is not None})
        _read_again()


def close_token_file() -> None:
    """Let only this user read the token that joined instances share, and enter its folder."""
    with suppress(OSError, RuntimeError):  # no home folder, or no file
        path = Path.home() / ".ray" / "auth_token"
        modes = {place: place.stat().st_mode for place in (path, path.parent)}
        for place, mode in modes.items():
            if mode & _OTHERS and place.stat().st_uid == os.getuid():
                place.chmod(stat.S_IMODE(mode) & ~_OTHERS)
        if all(mode & _OTHERS for mode in modes.values()):
            log.warning("Other users could read %s until now: make a new token", path)


def _read_again() -> None:
    """Let Ray forget what it has read of the environment."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
