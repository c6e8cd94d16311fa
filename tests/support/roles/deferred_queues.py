"""Queues of a device that is the processor: copies run as late as events allow.

Whoever reads a copy without waiting for it reads what was there before; whoever overwrites its
source too early copies what came later. Kernels run at once, after what their queue waits for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from csnode.devices.queues import Event


class Copy(NamedTuple):
    target: torch.Tensor
    source: torch.Tensor


class DeferredEvent:
    """A point in a deferred queue; waiting for it runs what is before it, and no more."""

    def __init__(self, queue: DeferredQueue) -> None:
        self.time_ns = time.perf_counter_ns()
        self.is_done = False
        self._queue = queue

    def wait(self) -> None:
        """Run the queue up to this point."""
        while not self.is_done:
            self._queue.run_next()

    def reach(self) -> None:
        """Note that the queue has come here."""
        self.is_done, self.time_ns = True, time.perf_counter_ns()


class Wait(NamedTuple):
    event: DeferredEvent


class DeferredQueue:
    """Work in order, none of which has run yet."""

    def __init__(self) -> None:
        self._work: deque[Copy | Wait | DeferredEvent] = deque()

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy later."""
        self._work.append(Copy(target, source))

    def record(self) -> Event:
        """Return the point behind all work so far."""
        event = DeferredEvent(self)
        self._work.append(event)
        return event

    def wait(self, event: Event) -> None:
        """Go on later than an event."""
        assert isinstance(event, DeferredEvent)
        self._work.append(Wait(event))

    @property
    def may_go_on(self) -> bool:
        """Whether there is work, and it waits for nothing."""
        first = self._work[0] if self._work else None
        return first is not None and not (isinstance(first, Wait) and not first.event.is_done)

    def run_next(self) -> None:
        """Run the first piece of work, and before it what it waits for."""
        match self._work.popleft():
            case Copy(target, source):
                target.copy_(source)
            case Wait(event):
                event.wait()
            case DeferredEvent() as event:
                event.reach()

    def run_all(self) -> None:
        """Run all work."""
        while self._work:
            self.run_next()


class DeferredQueues:
    """Queues on the processor, with buffers that are NaN before they are written."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.all = DeferredQueue(), DeferredQueue(), DeferredQueue()
        self.inward, self.compute, self.outward = self.all

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Run what kernels wait for."""
        self.compute.run_all()
        yield

    def host_bytes(self, num_bytes: int) -> torch.Tensor:
        """Return bytes that are NaN in every float format."""
        return torch.full((num_bytes,), 0xFF, dtype=torch.uint8)

    def align_clock(self) -> None:
        """Do nothing: both clocks are one."""
