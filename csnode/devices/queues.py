"""Queues of work for a device that computes beside the processor: the lowest layer of staging.

A device has three queues. Copies into it, kernels, and copies out of it run side by side; work in
one queue runs in order. Between queues only events order work: a queue waits for an event of
another one (CUDA C++ Programming Guide, section "Streams"). Kernels of all lanes share one queue,
so values that they compute need no events among themselves.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import torch


class Event(Protocol):
    """A point in a queue, reached when all work before it is done."""

    @property
    def is_done(self) -> bool:
        """Whether the point is reached."""

    def wait(self) -> None:
        """Return when the point is reached."""

    @property
    def time_ns(self) -> int:
        """When it was reached (``time.perf_counter_ns`` clock); asked once it is done."""


class Queue(Protocol):
    """Work of one kind, in order."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy a tensor later; neither may change before an event recorded afterwards is done."""

    def record(self) -> Event:
        """Return the point behind all work so far."""

    def wait(self, event: Event) -> None:
        """Begin work that follows only when an event of another queue is done."""


class Queues(Protocol):
    """The queues of a device, and the memory from which they copy."""

    device: torch.device

    @property
    def inward(self) -> Queue:
        """The queue of copies into the device."""

    @property
    def compute(self) -> Queue:
        """The queue of kernels."""

    @property
    def outward(self) -> Queue:
        """The queue of copies out of the device."""

    def computing(self) -> AbstractContextManager[None]:
        """Let ops of torch in the block run on the compute queue."""

    def host_bytes(self, num_bytes: int) -> torch.Tensor:
        """Return bytes of the host that a queue can copy while the processor goes on."""

    def align_clock(self) -> None:
        """Compare the clock of the device with that of the host."""
