"""Locks between processes of one user: files that nobody else can open, so that nobody else holds.

A lock ends with its process. Whoever can open a file, be it for reading, can lock it (flock(2)),
and would stop all that wait for it. So a file that others can open is replaced by another.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("waferstream")

LIMIT_S = 120.0
"""How long a process waits for another one."""

_REPORTED_S = 5.0  # of waiting, after which it is logged
_POLL_S = 0.05
_OTHERS = 0o077
# Not through a link, which would create or open a file elsewhere.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def locked(path: Path, limit_s: float | None = None) -> Iterator[None]:
    """Hold the lock of a file, which is made if need be.

    Args:
        path: The file.
        limit_s: How long to wait for another process; ``LIMIT_S`` by default, 0 not at all.

    Raises:
        TimeoutError: Another process has held it for so long; the error names both.
        OSError: The file cannot be opened.
    """
    limit_s = LIMIT_S if limit_s is None else limit_s
    begin_s, is_reported = time.monotonic(), False
    while (descriptor := _taken(path)) is None:
        waited_s = time.monotonic() - begin_s
        if waited_s >= limit_s:
            held = f"has held the lock for {waited_s:.0f} s" if limit_s else "holds the lock"
            text = f"process {_holder(path)} {held}"
            raise TimeoutError(errno.ETIMEDOUT, text, str(path))
        if waited_s >= _REPORTED_S and not is_reported:
            is_reported = True
            log.warning("Waiting for process %s, which holds the lock %s", _holder(path), path)
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # children forked meanwhile hold the file, too
        os.close(descriptor)


def _taken(path: Path) -> int | None:
    """Return the open file if its lock was free, None if another process holds it."""
    if _is_open_to_others(path):
        _replace(path)
    while True:
        descriptor = os.open(path, _FLAGS, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_file(path, descriptor):  # else it was replaced or removed meanwhile
            return descriptor
        os.close(descriptor)


def _is_open_to_others(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISREG(mode) and bool(mode & _OTHERS)


def _replace(path: Path) -> None:
    """Put a file that only this user can open in the place of one that others can open."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    os.close(os.open(fresh, _FLAGS | os.O_EXCL, 0o600))
    fresh.replace(path)


def _is_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    """Return the number of the process that holds a lock, as proc_locks(5) lists it."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return "unknown"
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5] == device:
            return fields[4]
    return "unknown"
