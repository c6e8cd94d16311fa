"""The processes of embedded workflows, which run already when they are submitted."""

from __future__ import annotations

import os
import socket

from waferstream.host.processes import started_ticks
from waferstream.management.model.workflow import Process

LEASE_S = 60.0
"""After so long without a beat, a process of another host counts as dead."""


def this_process() -> Process:
    """Return this process as the one of a workflow."""
    pid = os.getpid()
    ticks = started_ticks(pid)
    assert ticks is not None, "this process runs"
    return Process(host=socket.gethostname(), pid=pid, started_ticks=ticks)


def is_dead(process: Process, silent_s: float) -> bool:
    """Return whether a process has ended; one of another host has, if it is silent for long."""
    if process.host == socket.gethostname():
        return started_ticks(process.pid) != process.started_ticks
    return silent_s > LEASE_S
