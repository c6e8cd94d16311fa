"""The process that runs a job."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path

from waferstream.core.config import Config


class Owner(Config):
    """The process that runs a job."""

    user: str
    host: str
    pid: int
    started_ticks: int
    """Start of the process, which tells it from a later one with the same number."""


def this_process() -> Owner:
    """Return this process as the owner of a job."""
    pid = os.getpid()
    ticks = _started_ticks(pid)
    assert ticks is not None, "this process runs"
    return Owner(user=_user(), host=socket.gethostname(), pid=pid, started_ticks=ticks)


def _user() -> str:
    """Return the name of the user, or the number of one without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def is_dead(owner: Owner) -> bool:
    """Return whether a process of this host has ended; those of other hosts cannot be seen."""
    return owner.host == socket.gethostname() and _started_ticks(owner.pid) != owner.started_ticks


def _started_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before may hold spaces
    # Field 22 of proc_pid_stat(5); the state is field 3.
    return None if state in "ZX" else int(fields[18])
