"""Processes of this host, told from later ones that have the same number."""

from __future__ import annotations

import getpass
import os
from pathlib import Path


def started_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before may hold spaces
    # Field 22 of proc_pid_stat(5); the state is field 3.
    return None if state in "ZX" else int(fields[18])


def user_name() -> str:
    """Return the name of the user, or the number of one without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
