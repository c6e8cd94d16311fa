"""Find the processes of a run, and wait for their end; what this process holds open."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def descriptors() -> set[tuple[str, str]]:
    """Return the open descriptors of this process, each with what it leads to.

    Their number alone would shrink where something is freed that an earlier test has left.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the list itself
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


def descendants(pid: int) -> set[int]:
    """Return all processes below a process."""
    found = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found |= {child} | descendants(child)
    return found


def command_of(pid: int) -> bytes:
    """Return the command line, or Ray's title of an actor; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def running(pids: Iterable[int]) -> set[int]:
    """Return those of the processes that have not ended."""
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def wait_for_end(pids: Iterable[int], timeout_s: float = 20) -> set[int]:
    """Wait for processes to end; return those that still run after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while (left := running(pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def wait_for_state(pids: Iterable[int], state: str, timeout_s: float = 20) -> set[int]:
    """Wait until processes have a state of proc(5), ``T`` if stopped; return those that have not."""
    left, deadline = set(pids), time.monotonic() + timeout_s
    while left and time.monotonic() < deadline:
        left = {pid for pid in left if _state_of(pid) != state}
        time.sleep(0.02)
    return left


def write_endless_program(path: Path) -> Path:
    """Write a program that prints a line and goes on for a minute, whatever its arguments."""
    path.write_text("#!/bin/sh\necho begun\nexec sleep 60\n")
    path.chmod(0o755)
    return path


def _state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
