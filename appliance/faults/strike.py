"""What happens when a fault happens: to a process, to a message, to a disk."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from appliance.faults.plan import Fault
from waferstream.core.messages.messages import Envelope

_FOREVER_S = 1e9
_STRANGER = "nobody-0"


def strike(fault: Fault) -> None:
    """Let a fault happen to this process."""
    match fault.kind:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGSEGV)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "hang":
            time.sleep(_FOREVER_S)
        case "slow" | "partition":
            time.sleep(fault.seconds)
        case "clock":
            _shift_clock(fault.seconds)
        case "memory":
            raise MemoryError(f"a fault on demand: {fault}")
        case _:
            raise RuntimeError(f"a fault on demand: {fault}")


def _shift_clock(seconds: float) -> None:
    """Let the clock of this process jump, for everything that reads it in Python."""
    before = time.time
    time.time = lambda: before() + seconds


def damaged(fault: Fault, message: Envelope) -> Iterator[Envelope]:
    """Yield the copies of a numbered message that arrive: none, two, late, or from nobody."""
    match fault.kind:
        case "drop":
            return
        case "delay":
            time.sleep(fault.seconds)
        case "duplicate":
            yield message
        case _:
            message = replace(message, source=_STRANGER)
    yield message


@contextmanager
def full_disk(num_bytes: int) -> Iterator[None]:
    """Let this process write at most so many bytes of a file: the kernel refuses the others."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
