"""What is in the SRAM of a wafer at each moment of a step, from the program alone.

    segment        0        1        2        3        4        5
                forward  forward  forward  backward backward backward
    stash of 0     w        s        s        s        s        s     read last by segment 5
    stash of 1              w        s        s        s              read last by segment 4

A piece of the stash is part of the working set (w) of the segment that makes it, and in the stash
(s) from the next segment to its last reader.

The output head of a language model, which is all that runs between the last repeated layer's
forward and backward pass, makes a value for every word of the vocabulary: many times what a layer
makes. The wafer runs it one sample at a time, forward and backward (chunked loss), and keeps only
the gradient that goes on to the layer before. So there its activations count for one sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from waferstream.core.program.program import Program
from waferstream.core.program.segment import Footprint, Stash

_REPEATED = re.compile(r"\.\d+$")  # "decoder.3": a layer's name ends at its first number


@dataclass(frozen=True)
class Life:
    """A piece of the stash, the segment that makes it, and those that read it, in order.

    ``footprint`` is what is there at a time: all of it, or one sample's in the output head.
    """

    stash: Stash
    producer: int
    readers: tuple[int, ...]
    footprint: Footprint


@dataclass(frozen=True)
class Moment:
    """SRAM while the wafer runs a segment: the ``stash``, and the ``working`` set it makes."""

    segment: int
    stash: Footprint
    working: Footprint

    @property
    def footprint(self) -> Footprint:
        """All activations."""
        return self.stash + self.working


def output_head(program: Program) -> range:
    """Return the segments between the last repeated layer's forward and its backward pass.

    Empty for a program without repeated layers.
    """
    segments = program.segments
    forward = [s.index for s in segments if s.phase == "forward" and _REPEATED.search(s.layer)]
    if not forward:
        return range(0)
    backward = [s.index for s in segments if s.phase == "backward" and _REPEATED.search(s.layer)]
    return range(forward[-1] + 1, min(backward, default=len(segments)))


def lives(program: Program) -> Iterator[Life]:
    """Yield each piece of the stash with its readers; pieces without readers are left out."""
    reading: dict[str, list[int]] = {}
    for segment in program.segments:
        for name in segment.inputs:
            reading.setdefault(name, []).append(segment.index)
    head = output_head(program)
    for segment in program.segments:
        for stash in segment.stash:
            if len(stash.values) == 1:
                readers = reading.get(stash.values[0], [])
            else:
                readers = sorted({i for name in stash.values for i in reading.get(name, ())})
            if readers:
                whole = stash.footprint
                in_head = segment.index in head and readers[-1] in head
                held = _of_one_sample(whole) if in_head else whole
                yield Life(stash, segment.index, tuple(readers), held)


def moments(program: Program) -> tuple[Moment, ...]:
    """Return the SRAM at every segment of one micro-batch, in order."""
    return moments_of(program, lives(program))


def moments_of(program: Program, stash: Iterable[Life]) -> tuple[Moment, ...]:
    """Return the same as ``moments`` for a program whose stash is known."""
    head = output_head(program)
    change = [Footprint()] * (len(program.segments) + 1)
    for life in stash:
        change[life.producer + 1] += life.footprint
        change[life.readers[-1] + 1] -= life.footprint
    return tuple(
        Moment(
            segment.index,
            stash,
            _of_one_sample(segment.working) if segment.index in head else segment.working,
        )
        for segment, stash in zip(program.segments, accumulate(change), strict=False)
    )


def stash_by_layer(program: Program, moment: Moment) -> dict[str, Footprint]:
    """Return the stash at a moment by the layer that made it, in order."""
    found: dict[str, Footprint] = {}
    for life in lives(program):
        if life.producer < moment.segment <= life.readers[-1]:
            layer = program.segments[life.producer].layer
            found[layer] = found.get(layer, Footprint()) + life.footprint
    return found


def _of_one_sample(footprint: Footprint) -> Footprint:
    """Return the footprint of a single sample, whatever the micro-batch."""
    return Footprint(fixed_bytes=footprint.of(1))
