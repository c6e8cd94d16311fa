"""The pulse of a process: what it does, since when, and for whom it waits.

A process writes its pulse into shared memory, and any process of its host reads it from there. So a
pulse can be read while its writer computes, holds Python's lock, is stopped, or has just died; a
heartbeat thread would need its share of the processor and of that lock, and would be late on a busy
host. Whether a process is stopped (SIGSTOP) is asked of the kernel, not of the process.

The memory holds the number of the latest pulse and the last two pulses. A process writes into the
place of the older one, then the number: wherever it is held up, the latest pulse is whole.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import torch

from swarmx.links.memory import SharedArena
from waferstream.core.messages.payload import Payload

STOPPED = "T"  # proc_pid_stat(5): stopped on a signal; "t" is a debugger's
_TEXT_BYTES = 240

_NUMBER_BYTES = 8
_LAYOUT = struct.Struct(f"=Qqqq{_TEXT_BYTES}s")
"""A pulse: activity, since (ns), busy (ns), step, text."""


class Activity(IntEnum):
    """What a process does."""

    IDLE = 0
    """It waits for the next call of its coordinator."""
    CALL = 1
    """It runs a call between jobs: install, save, restore."""
    WAIT = 2
    """It waits for a message in a job."""
    WORK = 3
    """It handles a message in a job."""


@dataclass(frozen=True)
class Pulse:
    """What a process did when it was looked at.

    Attributes:
        activity: What it does.
        age_s: For how long.
        busy_s: Seconds in which it has handled messages since its start.
        step: The latest step of which it has handled a message.
        detail: The call, the message that it handles, or what it waits for.
        peers: The roles that it waits for, as far as it has said so.
        is_stopped: Whether a signal has stopped the process.
        is_alive: Whether the process exists.
    """

    activity: Activity
    age_s: float
    busy_s: float
    step: int
    detail: str
    peers: tuple[str, ...] = ()
    is_stopped: bool = False
    is_alive: bool = True


class PulseWriter:
    """The pulse of this process. ``payload`` is where others read it; for one thread."""

    def __init__(self) -> None:
        slab = SharedArena().allocate(_NUMBER_BYTES + 2 * _LAYOUT.size)
        self.payload: Payload = slab.place
        self._bytes = slab.view(torch.uint8).numpy().data
        self._latest = self._bytes[:_NUMBER_BYTES].cast("Q")  # one store: never half done
        self._latest[0] = 0
        self._activity = Activity.IDLE
        self._since_ns = time.monotonic_ns()
        self._busy_ns = 0
        self._step = 0
        self._write("", ())

    def idle(self) -> None:
        """State that the process waits for its next call."""
        self._change(Activity.IDLE, "")

    def fail(self) -> None:
        """State that a call failed; a process that waited keeps stating for which role.

        The error of a stalled job names each wait. It is made after the first wait has ended, so
        the others must still be readable then.
        """
        if self._activity is not Activity.WAIT:
            self.idle()

    def call(self, what: str) -> None:
        """State that a call begins, or that it is still progressing."""
        self._change(Activity.CALL, what)

    def wait(self) -> None:
        """State that the process begins to wait for a message."""
        self._change(Activity.WAIT, "")

    def explain(self, what: str, peers: Sequence[str]) -> None:
        """State what the process waits for, since the time that ``wait`` has stated."""
        self._write(what, peers)

    def work(self, what: str, step: int) -> None:
        """State that the process begins to handle a message of a step."""
        self._step = step
        self._change(Activity.WORK, what)

    def _change(self, activity: Activity, detail: str) -> None:
        now_ns = time.monotonic_ns()
        if self._activity is Activity.WORK:
            self._busy_ns += now_ns - self._since_ns
        self._activity, self._since_ns = activity, now_ns
        self._write(detail, ())

    def _write(self, detail: str, peers: Sequence[str]) -> None:
        number = self._latest[0] + 1
        text = f"{','.join(peers)}\0{detail}".encode()[:_TEXT_BYTES]
        _LAYOUT.pack_into(
            self._bytes,
            _offset(number),
            self._activity,
            self._since_ns,
            self._busy_ns,
            self._step,
            text,
        )
        self._latest[0] = number


def _offset(number: int) -> int:
    """Return where a pulse lies in the memory, in bytes."""
    return _NUMBER_BYTES + number % 2 * _LAYOUT.size


def read_pulse(pid: int, payload: Payload) -> Pulse:
    """Return the pulse of a process of this host.

    Raises:
        ApplianceRuntimeServerError: The process ended before its pulse was first read.
    """
    content = payload.view(torch.uint8).numpy().data
    latest = content[:_NUMBER_BYTES].cast("Q")
    number = None
    while number != latest[0]:  # read again: there is a later one, and it may have been replaced
        number = latest[0]
        activity, since_ns, busy_ns, step, text = _LAYOUT.unpack_from(content, _offset(number))
    peers, _, detail = text.rstrip(b"\0").decode(errors="replace").partition("\0")
    state = state_of(pid)
    return Pulse(
        Activity(activity),
        (time.monotonic_ns() - since_ns) / 1e9,
        busy_ns / 1e9,
        step,
        detail,
        tuple(peers.split(",")) if peers else (),
        is_stopped=state == STOPPED,
        is_alive=state not in ("", "Z", "X"),
    )


def state_of(pid: int) -> str:
    """Return the kernel's letter for the state of a process; empty if there is none."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return status.rpartition(") ")[2][:1]
