"""Resources of the emulated machine: who is busy with what, and when.

A resource takes its work in the order in which it is asked, which is the order of the schedule
and never that of arrival; that is why emulated time is data and every kind of cluster agrees on
it. All times are integers in picoseconds since the start of the machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import NamedTuple, Protocol

from wsc.core.units import transfer_ps


@dataclass(frozen=True)
class Occupancy:
    """One activity of one timeline in emulated time, for traces."""

    timeline: str
    activity: str
    start_ps: int
    end_ps: int


class Resource(Protocol):
    """Anything whose state is a fixed number of times."""

    @property
    def times(self) -> list[int]:
        """Its state, in picoseconds."""

    def resume(self, times: Iterator[int]) -> None:
        """Go on from a state, as many times as it needs."""


State = tuple[int, ...]
"""The state of several resources, in picoseconds after or (negative) before now."""


def state_of(resources: Sequence[Resource], now_ps: int, floor_ps: int) -> State:
    """What the future of resources depends on, if nothing is ready before ``floor_ps`` any more."""
    times = [time for resource in resources for time in resource.times]
    return tuple([(time if time > floor_ps else floor_ps) - now_ps for time in times])


def resume(resources: Sequence[Resource], state: State, now_ps: int) -> None:
    """Put resources into a state at another time."""
    times = (now_ps + time for time in state)
    for resource in resources:
        resource.resume(times)


class Timeline:
    """A resource that does one thing at a time.

    What it does is appended to ``record`` if one is given.
    """

    def __init__(self, name: str, record: list[Occupancy] | None = None) -> None:
        self.name = name
        self.free_ps = 0
        self._record = record

    @property
    def times(self) -> list[int]:
        return [self.free_ps]

    def resume(self, times: Iterator[int]) -> None:
        self.free_ps = next(times)

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

    @property
    def times(self) -> list[int]:
        return list(self._returned_ps)

    def resume(self, times: Iterator[int]) -> None:
        self._returned_ps.extend(islice(times, len(self._returned_ps)))

    def take(self) -> int:
        """When the next item may go out. IndexError if all credits are out."""
        opens_ps = self._returned_ps[self._num_out]
        self._num_out += 1
        return opens_ps

    def give_back(self, returned_ps: int) -> None:
        """The oldest item that is out comes back."""
        self._returned_ps.append(returned_ps)
        self._num_out -= 1


class Stamps:
    """When each of several things last happened; 0 if it never did."""

    def __init__(self) -> None:
        self._at_ps: dict[str, int] = {}
        self.latest_ps = 0

    def add(self, names: Sequence[str]) -> None:
        """Keep time of these, too."""
        self._at_ps = dict.fromkeys(names, 0) | self._at_ps

    def last_of(self, names: Sequence[str]) -> int:
        """When it happened to the last of these; 0 for none."""
        return max(map(self._at_ps.get, names, repeat(0)), default=0)

    def stamp(self, names: Sequence[str], at_ps: int) -> None:
        """It happens to these."""
        self._at_ps.update(dict.fromkeys(names, at_ps))
        self.latest_ps = max(self.latest_ps, at_ps)

    @property
    def times(self) -> list[int]:
        return list(self._at_ps.values())

    def resume(self, times: Iterator[int]) -> None:
        self._at_ps = dict(zip(self._at_ps, times, strict=False))
        self.latest_ps = max(self._at_ps.values(), default=0)
