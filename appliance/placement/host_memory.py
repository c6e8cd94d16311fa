"""Memory of this host: what is free, and whether its kernel has ended processes for lack of it."""

from __future__ import annotations

from pathlib import Path

from waferstream.core.units import KIB, format_bytes

_MEMINFO = Path("/proc/meminfo")
_VMSTAT = Path("/proc/vmstat")
_CONTROL_GROUP = Path("/sys/fs/cgroup")


def _field(path: Path, name: str) -> int:
    """Return the number after a name at the beginning of a line, 0 if there is none."""
    lines = (line.split() for line in path.read_text().splitlines())
    return next((int(words[1]) for words in lines if words[0] == name), 0)


def free_bytes(meminfo: Path = _MEMINFO, group: Path = _CONTROL_GROUP) -> int:
    """Return the bytes of memory that are free on this host, within the limit of its container.

    Args:
        meminfo: Memory of the host, as proc(5) describes it.
        group: Folder of the control group (cgroup v2); without its files there is no limit.
    """
    free = _field(meminfo, "MemAvailable:") * KIB
    try:
        limit, used = ((group / f"memory.{name}").read_text() for name in ("max", "current"))
    except OSError:
        return free
    return free if limit.strip() == "max" else max(0, min(free, int(limit) - int(used)))


def swap_bytes(meminfo: Path = _MEMINFO) -> int:
    """Return the bytes of swap space that are free on this host."""
    return _field(meminfo, "SwapFree:") * KIB


def oom_kills(vmstat: Path = _VMSTAT) -> int:
    """Return how many processes the kernel has ended for lack of memory since the host started.

    0 where the kernel does not count them (before Linux 4.13).
    """
    return _field(vmstat, "oom_kill")


_KILLS_BEFORE = oom_kills()


def why_killed() -> str:
    """Return the likely reason for which a process of this host was killed, and the free memory."""
    kills = oom_kills() - _KILLS_BEFORE
    free = f"{format_bytes(free_bytes())} of memory are free now"
    if kills:
        return (
            f"most likely the kernel ended it for lack of memory: it has ended {kills} on this "
            f"host since the run began (oom_kill in /proc/vmstat); {free}"
        )
    return (
        f"the kernel has ended no process of this host for lack of memory since the run began, so "
        f"somebody may have killed it; {free}"
    )
