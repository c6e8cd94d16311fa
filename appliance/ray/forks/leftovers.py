"""The processes of a private Ray that are left when it has ended, found in /proc and killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from appliance.ray.forks import worker_launcher

_SCRIPTS = (
    os.fsencode(worker_launcher.__file__),
    b"/ray/dashboard/agent.py",
    b"/ray/_private/runtime_env/agent/main.py",
    b"tail\0--pid=",
)
"""What a raylet starts, in the command lines of those that have no title of Ray's yet."""


def end_groups(groups: Collection[int]) -> None:
    """End the processes of Ray that are left in some process groups."""
    for entry in Path("/proc").glob("[1-9]*"):
        # A group number alone could belong to others by now.
        with suppress(OSError):
            title = (entry / "cmdline").read_bytes()
            is_rays = title.startswith(b"ray::") or any(name in title for name in _SCRIPTS)
            if is_rays and os.getpgid(int(entry.name)) in groups:
                os.kill(int(entry.name), signal.SIGKILL)


def end_below(pid: int) -> None:
    """End the processes of instances below a fork server, and their workers."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[1-9]*"):
        with suppress(OSError):
            _, _, fields = (entry / "stat").read_text(errors="replace").rpartition(") ")
            parent = int(fields.split()[1])  # proc_pid_stat(5): after the name come state, parent
            children.setdefault(parent, []).append(int(entry.name))
    for instance in children.get(pid, ()):
        for each in (instance, *children.get(instance, ())):
            with suppress(OSError):
                os.kill(each, signal.SIGKILL)
