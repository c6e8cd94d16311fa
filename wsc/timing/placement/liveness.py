"""What lies in the SRAM of a wafer at each moment of a step, from the program alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from wsc.core.program import Footprint, Program, Stash


@dataclass(frozen=True)
class Life:
    """The segments that read a piece of the stash, in order; it is made by ``producer``."""

    stash: Stash
    producer: int
    readers: tuple[int, ...]


@dataclass(frozen=True)
class Moment:
    """The wafer while it runs a segment: ``stash`` lies there, ``working`` is what it makes."""

    segment: int
    stash: Footprint
    working: Footprint

    @property
    def footprint(self) -> Footprint:
        """All activations."""
        return self.stash + self.working


def lives(program: Program) -> Iterator[Life]:
    """Who reads each piece of the stash; what nobody reads is left out."""
    reading: dict[str, list[int]] = {}
    for segment in program.segments:
        for name in segment.inputs:
            reading.setdefault(name, []).append(segment.index)
    for segment in program.segments:
        for stash in segment.stash:
            readers = {index for name in stash.values for index in reading.get(name, ())}
            if readers:
                yield Life(stash, segment.index, tuple(sorted(readers)))


def moments(program: Program) -> tuple[Moment, ...]:
    """Every segment of one micro-batch in order.

    A piece of the stash lies there from the segment after its producer to the last of its readers;
    before, it is part of the producer's working set.
    """
    change = [Footprint()] * (len(program.segments) + 1)
    for life in lives(program):
        change[life.producer + 1] += life.stash.footprint
        change[life.readers[-1] + 1] -= life.stash.footprint
    return tuple(
        Moment(segment.index, stash, segment.working)
        for segment, stash in zip(program.segments, accumulate(change), strict=False)
    )
