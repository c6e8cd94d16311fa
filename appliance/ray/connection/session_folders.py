"""Folders that Ray leaves in its temporary folder: those of our ended runs are removed.

Ray makes a folder for the logs and sockets of every instance and removes none. Ours get a file that
names the process which has started the instance. The newest folder of an ended run stays, as the
error of that run names log files in it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

_OWNER = "waferstream-owner"


def mark_session(folder: Path) -> None:
    """Note in the folder of an instance that it belongs to this process."""
    with suppress(OSError):  # then it stays, as every folder of Ray does
        (folder / _OWNER).write_text(f"{os.getpid()} {_start_of(os.getpid())}")


def remove_ended_sessions(root: Path) -> None:
    """Remove the marked folders of this user whose processes have ended, but for the newest."""
    ended = sorted((path for path in root.glob("session_*") if _has_ended(path)), reverse=True)
    for path in ended[1:]:
        shutil.rmtree(path, ignore_errors=True)


def _has_ended(folder: Path) -> bool:
    """Return whether a folder is one of ours, and its process has ended."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        pid, _, start = (folder / _OWNER).read_text().partition(" ")
    except OSError:
        return False
    return bool(start) and pid.isdecimal() and _start_of(int(pid)) != start


def _start_of(pid: int) -> str:
    """Return the start time of a process, which tells it from a later one of the same number.

    It is field 22 of /proc/PID/stat (proc(5)), empty if there is no such process.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
    except OSError:
        return ""
