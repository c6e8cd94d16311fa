"""What lies in the SRAM of a wafer at each moment of a step, from the program alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from timing.sram.turn import of_one_sample, turn_of
from wsc.core.program import Footprint, Program, Stash


@dataclass(frozen=True)
class Life:
    """A piece of the stash, the segment that makes it, and those that read it, in order.

    ``footprint`` is what of it lies there at a time: all but in the turn of the step.
    """

    stash: Stash
    producer: int
    readers: tuple[int, ...]
    footprint: Footprint


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
    turn = turn_of(program)
    for segment in program.segments:
        for stash in segment.stash:
            if len(stash.values) == 1:
                readers = reading.get(stash.values[0], [])
            else:
                readers = sorted({i for name in stash.values for i in reading.get(name, ())})
            if readers:
                whole = stash.footprint
                in_turn = segment.index in turn and readers[-1] in turn
                held = of_one_sample(whole) if in_turn else whole
                yield Life(stash, segment.index, tuple(readers), held)


def moments(program: Program) -> tuple[Moment, ...]:
    """Every segment of one micro-batch in order.

    A piece of the stash lies there from the segment after its producer to the last of its readers;
    before, it is part of the producer's working set. In the turn of the step one sample is on its
    way at a time.
    """
    return moments_of(program, lives(program))


def moments_of(program: Program, stash: Iterable[Life]) -> tuple[Moment, ...]:
    """The same for a program whose stash is known."""
    turn = turn_of(program)
    change = [Footprint()] * (len(program.segments) + 1)
    for life in stash:
        change[life.producer + 1] += life.footprint
        change[life.readers[-1] + 1] -= life.footprint
    return tuple(
        Moment(
            segment.index,
            stash,
            of_one_sample(segment.working) if segment.index in turn else segment.working,
        )
        for segment, stash in zip(program.segments, accumulate(change), strict=False)
    )


def stash_by_layer(program: Program, moment: Moment) -> dict[str, Footprint]:
    """Whose the stash is that lies there at a moment: by the layer that made it, in order."""
    found: dict[str, Footprint] = {}
    for life in lives(program):
        if life.producer < moment.segment <= life.readers[-1]:
            layer = program.segments[life.producer].layer
            found[layer] = found.get(layer, Footprint()) + life.footprint
    return found
