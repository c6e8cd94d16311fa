"""Resources of the emulated machine: timelines, wires, windows of credits, time stamps.

A resource does its work in the order of the calls, which is the order of the schedule and never
that of arrival. So emulated time does not depend on host time, and every kind of cluster agrees on
it. All times are integers in picoseconds since the start of the machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import NamedTuple, Protocol

from waferstream.core.units import transfer_ps
from waferstream.machine.jitter import scaled
from waferstream.machine.record import Record


class Resource(Protocol):
    """A resource whose state is a fixed number of times."""

    @property
    def times(self) -> list[int]:
        """State of the resource, in picoseconds."""

    def resume(self, times: Iterator[int]) -> None:
        """Take as many times as the resource has from ``times``, as its new state."""


State = tuple[int, ...]
"""The state of several resources, in picoseconds after or (negative) before now."""


def state_of(resources: Sequence[Resource], now_ps: int, floor_ps: int) -> State:
    """Return the state of resources, relative to now.

    Nothing starts before ``floor_ps`` any more, so earlier times count as ``floor_ps``: states that
    differ only there have the same future.
    """
    times = [time for resource in resources for time in resource.times]
    return tuple([(time if time > floor_ps else floor_ps) - now_ps for time in times])


def resume(resources: Sequence[Resource], state: State, now_ps: int) -> None:
    """Set resources to a state at another time."""
    times = (now_ps + time for time in state)
    for resource in resources:
        resource.resume(times)


class Timeline:
    """A resource that does one thing at a time.

    Activities are added to ``record`` if one is given.
    """

    def __init__(self, name: str, record: Record | None = None) -> None:
        self.name = name
        self.free_ps = 0
        self._record = record

    @property
    def times(self) -> list[int]:
        return [self.free_ps]

    def resume(self, times: Iterator[int]) -> None:
        self.free_ps = next(times)

    def occupy(
        self, ready_ps: int, duration_ps: int, activity: str = "", num_bytes: int = 0
    ) -> tuple[int, int]:
        """Work for ``duration_ps`` once resource and inputs are ready; return (start, end)."""
        start_ps = max(self.free_ps, ready_ps)
        self.free_ps = start_ps + duration_ps
        if self._record is not None:
            self._record.add(self.name, activity, start_ps, self.free_ps, num_bytes)
        return start_ps, self.free_ps


class Arrival(NamedTuple):
    """Times of the first and the last byte of a payload; equal for a payload in memory."""

    first_ps: int
    last_ps: int


class Wire(Timeline):
    """A link or a chain of equal links that passes bytes on as they come (cut-through).

    A payload occupies the wire from its first byte to its last, so a slow sender occupies a fast
    wire for longer. A chain of equal wires is one wire with the sum of their latencies:

        this end     first byte ======== last byte
        other end        first byte ======== last byte
                     |latency|
    """

    def __init__(
        self,
        name: str,
        bandwidth_bytes_per_s: int,
        latency_ps: int = 0,
        record: Record | None = None,
    ) -> None:
        super().__init__(name, record)
        self._bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self._latency_ps = latency_ps

    def carry(
        self, payload: Arrival, num_bytes: int, activity: str = "", factor: float = 1.0
    ) -> Arrival:
        """Carry a payload from this end to the other; return its arrival there.

        The slowest of equal links takes ``factor`` times as long.
        """
        start_ps = max(self.free_ps, payload.first_ps)
        line_ps = transfer_ps(scaled(num_bytes, factor), self._bandwidth_bytes_per_s)
        duration_ps = max(line_ps, payload.last_ps - start_ps)
        start_ps, end_ps = self.occupy(start_ps, duration_ps, activity, num_bytes)
        return Arrival(start_ps + self._latency_ps, end_ps + self._latency_ps)


class Window:
    """Window of credits: at most ``size`` items are out at a time, and they return in order."""

    def __init__(self, size: int) -> None:
        self._returned_ps = deque([0] * size, maxlen=size)
        self._num_out = 0

    @property
    def times(self) -> list[int]:
        return list(self._returned_ps)

    def resume(self, times: Iterator[int]) -> None:
        self._returned_ps.extend(islice(times, len(self._returned_ps)))

    def take(self) -> int:
        """Take a credit; return when the next item may go out. IndexError if all are taken."""
        opens_ps = self._returned_ps[self._num_out]
        self._num_out += 1
        return opens_ps

    def give_back(self, returned_ps: int) -> None:
        """Return the credit of the oldest item that is out."""
        self._returned_ps.append(returned_ps)
        self._num_out -= 1


class Stamps:
    """Times of the last event of each name; 0 for a name without events."""

    def __init__(self) -> None:
        self._at_ps: dict[str, int] = {}
        self.latest_ps = 0

    def add(self, names: Sequence[str]) -> None:
        """Keep the times of these names, too."""
        self._at_ps = dict.fromkeys(names, 0) | self._at_ps

    def last_of(self, names: Sequence[str]) -> int:
        """Return the latest time of these names; 0 for no names."""
        return max(map(self._at_ps.get, names, repeat(0)), default=0)

    def stamp(self, names: Sequence[str], at_ps: int) -> None:
        """Set the time of these names."""
        self._at_ps.update(dict.fromkeys(names, at_ps))
        self.latest_ps = max(self.latest_ps, at_ps)

    @property
    def times(self) -> list[int]:
        return list(self._at_ps.values())

    def resume(self, times: Iterator[int]) -> None:
        self._at_ps = dict(zip(self._at_ps, times, strict=False))
        self.latest_ps = max(self._at_ps.values(), default=0)
