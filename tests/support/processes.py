"""Processes of a run: which there are, and whether they end."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """The process tree below a process."""
    found = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found |= {child} | descendants(child)
    return found


def command_of(pid: int) -> bytes:
    """The command line, or the title that Ray gives an actor; nothing if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def running(pids: Iterable[int]) -> set[int]:
    """Those of some processes that have not ended."""
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def wait_for_end(pids: Iterable[int], timeout_s: float = 20) -> set[int]:
    """The processes that still run when the time is over."""
    deadline = time.monotonic() + timeout_s
    while (left := running(pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left
