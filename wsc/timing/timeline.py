"""Resources of the emulated machine: who is busy with what, and when.

A resource takes its work in the order in which it is asked, which is the order of the schedule
and never that of arrival; that is why emulated time is data and every kind of cluster agrees on
it. All times are integers in picoseconds since the start of the machine.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from wsc.core.units import transfer_ps


@dataclass(frozen=True)
class Occupancy:
    """One activity of one timeline in emulated time, for traces."""

    timeline: str
    activity: str
    start_ps: int
    end_ps: int


class Timeline:
    """A resource that does one thing at a time.

    What it does is appended to ``record`` if one is given.
    """

    def __init__(self, name: str, record: list[Occupancy] | None = None) -> None:
        self.name = name
        self.free_ps = 0
        self._record = record

    def occupy(self, ready_ps: int, duration_ps: int, activity: str = "") -> tuple[int, int]:
        """Work for ``duration_ps`` as soon as resource and inputs are ready: (start, end)."""
        start_ps = max(self.free_ps, ready_ps)
        self.free_ps = start_ps + duration_ps
        if self._record is not None and duration_ps:
            self._record.append(Occupancy(self.name, activity, start_ps, self.free_ps))
        return start_ps, self.free_ps


class Arrival(NamedTuple):
    """When the first and the last byte of a payload are there; equal if it lies in memory."""

    first_ps: int
    last_ps: int


class Wire(Timeline):
    """A link or a chain of equal links: bytes flow through it as they come (cut-through).

    A payload occupies it from its first byte to its last, so a slow sender holds a fast wire.
    A chain of equal wires is one wire whose latency is the sum of theirs.
    """

    def __init__(
        self,
        name: str,
        bandwidth_bytes_per_s: int,
        latency_ps: int = 0,
        record: list[Occupancy] | None = None,
    ) -> None:
        super().__init__(name, record)
        self._bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self._latency_ps = latency_ps

    def carry(self, payload: Arrival, num_bytes: int, activity: str = "") -> Arrival:
        """When a payload that is at this end as given is at the other end."""
        start_ps = max(self.free_ps, payload.first_ps)
        line_ps = transfer_ps(num_bytes, self._bandwidth_bytes_per_s)
        duration_ps = max(line_ps, payload.last_ps - start_ps)
        start_ps, end_ps = self.occupy(start_ps, duration_ps, activity)
        return Arrival(start_ps + self._latency_ps, end_ps + self._latency_ps)


class Window:
    """Credits: at most ``size`` items are out at a time, and they come back in order."""

    def __init__(self, size: int) -> None:
        self._returned_ps = deque([0] * size, maxlen=size)
        self._num_out = 0

    def take(self) -> int:
        """When the next item may go out. IndexError if all credits are out."""
        opens_ps = self._returned_ps[self._num_out]
        self._num_out += 1
        return opens_ps

    def give_back(self, returned_ps: int) -> None:
        """The oldest item that is out comes back."""
        self._returned_ps.append(returned_ps)
        self._num_out -= 1
