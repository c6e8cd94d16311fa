"""What the SRAM of a wafer has room for, and what is in it at each moment of a step.

    segment        0        1        2        3        4        5
                forward  forward  forward  backward backward backward
    stash of 0     w        s        s        s        s        s     read last by segment 5
    stash of 1              w        s        s        s              read last by segment 4

A piece of the stash is part of the working set (w) of the segment that makes it, and in the stash
(s) from the next segment to its last reader.

The output head of a language model, which is all that runs between the last repeated layer's
forward and backward pass, makes a value for every word of the vocabulary: many times what a layer
makes. The wafer runs it one sample at a time, of a long one ``HEAD_TOKENS`` tokens, forward and
backward (chunked loss), and keeps only the gradient that goes on to the layer before. So there its
activations count for that much.

A result of an elementwise op or a norm is not kept for the backward pass of its own layer if what
it is made from is kept: it is made again where it is read. Neither are scores of attention, which
are made a block of queries at a time (Dao et al. 2022, arXiv:2205.14135).

There are bytes for code, bytes for data, and buffers that streams pass through. Weights trigger
work as they arrive, and gradients leave as they are made (Lie, Hot Chips 34), so neither is stored
as a whole. Only while a segment is being started, nothing takes weights off the link and nothing
puts gradients on it: in that time the link fills one buffer and empties the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod

from waferstream.core.errors import ConfigError
from waferstream.core.program.program import BYTES_PER_ELEMENT, Program
from waferstream.core.program.segment import Footprint, Segment, Stash
from waferstream.core.program.stream_plan import GRADIENT_BYTES
from waferstream.core.units import PS_PER_S, format_bytes
from waferstream.machine.hardware import WaferSpec

_REPEATED = re.compile(r"\.\d+$")  # "decoder.3": a layer's name ends at its first number


@dataclass(frozen=True)
class Life:
    """A piece of the stash, the segment that makes it, and those that read it, in order.

    ``footprint`` is what is there at a time: all of it, one sample's in the output head, or nothing
    of a piece that is remade.
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


HEAD_TOKENS = 8192
"""Tokens that the output head runs at a time, as many as most public configurations have."""


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
    head, chunk = output_head(program), _Chunk.of_head(program)
    reading: dict[str, list[int]] = {}
    for segment in sorted(program.segments, key=lambda segment: _runs_at(segment, head)):
        for name in segment.inputs:
            reading.setdefault(name, []).append(_runs_at(segment, head))
    for segment in program.segments:
        for stash in segment.stash:
            if len(stash.values) == 1:
                readers = reading.get(stash.values[0], [])
            else:
                readers = sorted({i for name in stash.values for i in reading.get(name, ())})
            if readers:
                whole = stash.footprint
                in_head = _runs_at(segment, head) in head and readers[-1] in head
                held = chunk.of(whole) if in_head else whole
                life = Life(stash, segment.index, tuple(readers), held)
                is_kept = stash.held == "whole" or not is_internal(life, program)
                yield life if is_kept else replace(life, footprint=Footprint())


def _runs_at(segment: Segment, head: range) -> int:
    """Return the place of a segment in the step; one that runs with the head is there to its end.

    It makes a part of its outputs for each part that the head runs.
    """
    return head[-1] if segment.with_head else segment.index


def is_internal(life: Life, program: Program) -> bool:
    """Return whether a forward segment makes a piece for the backward pass of its layer alone."""
    producer = program.segments[life.producer]
    if producer.phase != "forward":
        return False
    readers = [program.segments[index] for index in life.readers]
    return all(r.phase == "backward" and r.layer == producer.layer for r in readers)


def moments(program: Program) -> tuple[Moment, ...]:
    """Return the SRAM at every segment of one micro-batch, in order."""
    return moments_of(program, lives(program))


def moments_of(program: Program, stash: Iterable[Life]) -> tuple[Moment, ...]:
    """Return the same as ``moments`` for a program whose stash is known."""
    change = [Footprint()] * (len(program.segments) + 1)
    for life in stash:
        change[life.producer + 1] += life.footprint
        change[life.readers[-1] + 1] -= life.footprint
    return tuple(
        Moment(index, stash, working)
        for index, (stash, working) in enumerate(
            zip(accumulate(change), working_sets(program), strict=False)
        )
    )


def working_sets(program: Program) -> tuple[Footprint, ...]:
    """Return the SRAM of the values that each segment makes.

    Its outputs that are remade later are there one at a time, in the output head one sample is.
    """
    remade: dict[int, list[Footprint]] = {}
    for life in lives(program):
        if life.stash.held == "remade" and life.footprint == Footprint():
            remade.setdefault(life.producer, []).append(life.stash.footprint)
    head, chunk = output_head(program), _Chunk.of_head(program)
    found = []
    for segment in program.segments:
        working = segment.working
        for dropped in sorted(remade.get(segment.index, ()), key=_size)[:-1]:
            working -= dropped
        found.append(chunk.of(working) if _runs_at(segment, head) in head else working)
    return tuple(found)


def _size(footprint: Footprint) -> tuple[int, int]:
    return footprint.sample_bytes, footprint.fixed_bytes


def stash_by_layer(program: Program, moment: Moment) -> dict[str, Footprint]:
    """Return the stash at a moment by the layer that made it, in order."""
    found: dict[str, Footprint] = {}
    for life in lives(program):
        if life.producer < moment.segment <= life.readers[-1]:
            layer = program.segments[life.producer].layer
            found[layer] = found.get(layer, Footprint()) + life.footprint
    return found


@dataclass(frozen=True)
class _Chunk:
    """What the output head runs at a time: ``num_parts`` of them are a sample."""

    num_parts: int

    @classmethod
    def of_head(cls, program: Program) -> _Chunk:
        """Return the chunk of a program, from the rows of the products of its head."""
        rows = (
            prod(work.shape[:2])
            for index in output_head(program)
            for work in program.segments[index].work
            if work.kind == "matmul" and work.streams
        )
        tokens = max(rows, default=0) // max(1, program.micro_batch_size)
        return cls(max(1, -(-tokens // HEAD_TOKENS)))

    def of(self, footprint: Footprint) -> Footprint:
        """Return the footprint of a chunk, whatever the micro-batch."""
        return Footprint(fixed_bytes=-(-footprint.of(1) // self.num_parts))


def code_bytes(wafer: WaferSpec) -> int:
    """Return the SRAM of all PEs that code and the runtime take."""
    return wafer.cores * wafer.fabric.sram_reserved_bytes_per_pe


def data_bytes(wafer: WaferSpec) -> int:
    """Return the SRAM of all PEs left for activations and the buffers of streams.

    Raises ConfigError if there is none.
    """
    left = wafer.sram_bytes - code_bytes(wafer)
    if left <= 0:
        raise ConfigError(
            "the wafer has no SRAM left for data",
            code="no-sram-for-data",
            where="machine.system.sram_bytes",
            value=format_bytes(wafer.sram_bytes),
            rule=f"more than the {format_bytes(code_bytes(wafer))} that code takes",
            remedy="raise it or lower machine.system.fabric.sram_reserved_bytes_per_pe "
            "in cluster.yaml",
        )
    return left


def describe(wafer: WaferSpec) -> str:
    """Return the size of a wafer as all reports state it."""
    grid = f"{wafer.fabric.columns} x {wafer.fabric.rows}"
    code = format_bytes(code_bytes(wafer))
    return (
        f"{wafer.cores:,} cores, of which kernels use a grid of {grid}; "
        f"{format_bytes(wafer.sram_bytes)} of SRAM, of which code takes {code}"
    )


def link_bytes(wafer: WaferSpec) -> int:
    """Return the bytes that the system's link carries one way while a segment is started."""
    return wafer.io_bandwidth_bytes_per_s * wafer.segment_overhead_ps // PS_PER_S


def buffer_bytes(program: Program, wafer: WaferSpec) -> tuple[int, ...]:
    """Return the bytes of the buffers while each segment runs; see ``Buffers``."""
    return tuple(Buffers(program, wafer).num_bytes)


class Buffers:
    """The buffers while each segment runs, where a segment may be given more weights.

    A segment needs a buffer for weights, its own or those of the next one, and one for its
    gradients; neither is larger than what streams meanwhile.
    """

    def __init__(self, program: Program, wafer: WaferSpec) -> None:
        self._program = program
        self._most = link_bytes(wafer)
        self._names = [segment.weights for segment in program.segments]
        self._weights = [self._weight_bytes(names) for names in self._names]
        self.num_bytes = [self._buffers(index) for index in range(len(self._names))]

    def stream_again(self, names: tuple[str, ...], user: int) -> None:
        """Stream weights to a segment that may have some of them already."""
        self._names[user] = tuple(dict.fromkeys((*self._names[user], *names)))
        self._weights[user] = self._weight_bytes(self._names[user])
        for index in (user - 1, user):
            self.num_bytes[index] = self._buffers(index)

    def _weight_bytes(self, names: tuple[str, ...]) -> int:
        return BYTES_PER_ELEMENT[self._program.stream_dtype] * self._program.num_elements(names)

    def _buffers(self, index: int) -> int:
        weights = max(self._weights[index : index + 2])  # its own, or those of the next
        made = self._program.segments[index].gradients
        gradients = GRADIENT_BYTES * self._program.num_elements(made)
        return min(self._most, weights) + min(self._most, gradients)
