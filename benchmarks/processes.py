"""Processor time of a process and of all processes below it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Busy(NamedTuple):
    """A process: its number, its name, and the seconds that it has computed so far."""

    pid: int
    name: str
    busy_s: float


def busy_below(root: int) -> Iterator[Busy]:
    """Yield a process and all processes below it, each after its parent, from proc_pid_stat(5).

    The time of a process includes that of children that have ended and that it has awaited.
    """
    found: dict[int, Busy] = {}
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[1-9]*"):
        with suppress(OSError):  # it has ended
            head, _, tail = (entry / "stat").read_text(errors="replace").rpartition(") ")
            fields, pid = tail.split(), int(entry.name)
            below.setdefault(int(fields[1]), []).append(pid)
            ticks = sum(map(int, fields[11:15]))  # user and system time, own and of children
            found[pid] = Busy(pid, head.partition("(")[2], ticks / os.sysconf("SC_CLK_TCK"))
    family = [root]
    for pid in family:
        family += below.get(pid, [])
        if pid in found:
            yield found[pid]
