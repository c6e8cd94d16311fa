"""Trips of activations: what of the stash is away from its node between two segments.

    segment             0      1      2      3      4      5
    a piece of 0        made   away   away   away   away   read
                            |                           |
                            leaves for an activation    is back before
                            server

Trips are static like the schedule: every micro-batch has the same ones, on every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from waferstream.core.program.segment import Segment


@dataclass(frozen=True)
class Trip:
    """A piece of the stash that leaves a node after one segment and is back before another.

    It is the stash ``piece`` of the segment ``producer``, of ``num_bytes`` on a host.
    """

    producer: int
    piece: int
    after: int
    before: int
    num_bytes: int

    @property
    def absence(self) -> range:
        """The segments during which the piece is away."""
        return range(self.after + 1, self.before)

    def values_of(self, segments: Sequence[Segment]) -> tuple[str, ...]:
        """Return the names of the piece in the segments for micro-batches of some size.

        None leave where another size is cut in other pieces, one of which is read meanwhile.
        """
        stash = segments[self.producer].stash
        values = stash[self.piece].values if self.piece < len(stash) else ()
        is_read = any(not set(values).isdisjoint(segments[i].inputs) for i in self.absence)
        return () if is_read else values


@dataclass(frozen=True)
class Trips:
    """The trips of every micro-batch of a program, and how many servers take them in turn."""

    all: tuple[Trip, ...] = ()
    num_servers: int = 0

    def server_of(self, trip: int) -> int:
        """Return the server that keeps a piece during a trip."""
        return trip % self.num_servers

    def num_of(self, server: int) -> int:
        """Return the trips of one micro-batch to one server."""
        return len(range(server, len(self.all), self.num_servers))

    @cached_property
    def leaving(self) -> dict[int, tuple[int, ...]]:
        """The trips that begin after a segment, by segment."""
        return _by_segment((trip.after, index) for index, trip in enumerate(self.all))

    @cached_property
    def returning(self) -> dict[int, tuple[int, ...]]:
        """The trips that end before a segment, by segment."""
        return _by_segment((trip.before, index) for index, trip in enumerate(self.all))


NO_TRIPS = Trips()
"""Nothing leaves."""


def _by_segment(pairs: Iterable[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    table: dict[int, tuple[int, ...]] = {}
    for segment, index in pairs:
        table[segment] = (*table.get(segment, ()), index)
    return table
