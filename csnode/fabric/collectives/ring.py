"""Rings folded into a line: out over even positions, back over odd ones.

Ring of 6 PEs, with the colours of its links (a and b lead out, c and d lead back)::

    out    0 --a--> 2 --b--> 4 --a--> 5
    back   0 <--c-- 1 <--d-- 3 <--c-- 5

So neighbours in the ring are at most two hops apart. A link's colour differs from that of the link
behind it, since a PE receives on one while it sends on the other, and links that pass a router in
opposite directions differ as well. One switch position is enough.

All-reduce: P - 1 steps of reduce-scatter and P - 1 of all-gather, each a chunk of words / P to the
next PE of the ring (HPDC'24, timing model 2b: 2 (P - 1) words / P + 4 P - 6 + 2 (P - 1) (2 T_R +
1)). One thread receives and adds, another one sends each completed chunk. Each step also waits for
a set-up and a signal, which that formula omits.

Sum: starts just after the PE that keeps it, runs once round, and ends there (Lie, Hot Chips 34).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from csnode.fabric.collectives.paths import Path
from csnode.fabric.dtypes import Array
from csnode.fabric.instructions import (
    Instruction,
    Signal,
    Stream,
    Vector,
    Wait,
    receive,
    receive_add,
    receive_add_forward,
    send,
)
from csnode.fabric.memory import Slice, SramArray
from csnode.fabric.program import Port, Program
from waferstream.core.errors import ApplianceCompilationError

_RECEIVER, _SENDER = 0, 1


@dataclass(frozen=True)
class Ring:
    """Every line of ``path`` as a ring; ``colours``: two that lead out, two that lead back.

    A *place* counts around the ring, a *position* along the line.
    """

    path: Path
    colours: tuple[int, int, int, int]

    @property
    def size(self) -> int:
        """PEs of a ring."""
        return self.path.length

    @cached_property
    def positions(self) -> Array:
        """Position of each place, int64 [size]; the first n positions are consecutive places."""
        line = np.arange(self.size)
        return np.concatenate([line[1::2][::-1], line[::2]])

    @cached_property
    def outgoing(self) -> Array:
        """Colour on which each place sends to the next, int64 [size]."""
        outward = np.roll(self.positions, -1) > self.positions
        which = np.where(outward, 0, 2) + self.positions // 2 % 2
        return np.array([self.colours[k] for k in which])

    @cached_property
    def incoming(self) -> Array:
        """Colour on which each place receives from the one before, int64 [size]."""
        return np.roll(self.outgoing, 1)

    def at(self, places: int | Array) -> tuple[Array, Array]:
        """Return the selection of the PEs of all rings at a place, or at several."""
        return self.path.at(self.positions[places])

    def route(self, program: Program) -> None:
        """Add the routes of all links, which are reusable."""
        links = zip(self.positions, np.roll(self.positions, -1), self.outgoing, strict=True)
        for start, end, colour in links if self.size > 1 else ():
            _route(program, self.path, int(start), int(end), int(colour))


def _route(program: Program, path: Path, start: int, end: int, colour: int) -> None:
    """Route from one core over the routers between to another core."""
    step = 1 if end > start else -1
    ports = path.away if step > 0 else path.toward
    back = path.toward if step > 0 else path.away
    program.route(colour, path.at(start), Port.RAMP, ports[start])
    for position in range(start + step, end, step):
        program.route(colour, path.at(position), back[position], ports[position])
    program.route(colour, path.at(end), back[end], Port.RAMP)


def do_ring_sum(
    program: Program, ring: Ring, keeper: int, values: Slice, into: Slice, thread: int = 0
) -> None:
    """Sum ``values`` around every ring into ``into`` of the PE at place ``keeper``.

    A ring of one PE copies its values.
    """
    if ring.size == 1:
        program.do(ring.at(0), Vector("copy", into, values), thread=thread)
        return
    first, last = (keeper + 1) % ring.size, keeper
    begin = send(values, int(ring.outgoing[first]))
    end = Stream(operand=values, receive=int(ring.incoming[last]), store=into)
    program.do(ring.at(first), begin, thread=thread)
    program.do(ring.at(last), end, thread=thread)
    onward = np.delete(np.arange(ring.size), [first, last])
    links = np.stack([ring.incoming, ring.outgoing], axis=1)[onward]
    for link in np.unique(links, axis=0):
        places = onward[(links == link).all(axis=1)]
        program.do(ring.at(places), receive_add_forward(values, *link.tolist()), thread=thread)


def add_ring_all_reduce(
    program: Program, path: Path, values: SramArray, colours: tuple[int, int, int, int]
) -> None:
    """Sum ``values`` over every line of ``path``, for all its PEs.

    Raises ApplianceCompilationError when the array does not divide into one chunk of whole words
    per PE.
    """
    ring = Ring(path, colours)
    chunk, rest = divmod(values.length, ring.size)
    if rest or chunk % values.dtype.per_word:
        raise ApplianceCompilationError(
            f"array {values.name!r} must divide into one chunk per PE of the ring",
            code="ring-chunk-not-whole",
            value=f"{values.length} elements, {ring.size} PEs",
            rule="one chunk of whole 32-bit words per PE",
            remedy="pad the array",
        )
    ring.route(program)
    for place in range(ring.size if ring.size > 1 else 0):
        chunks = [
            values[k * chunk : (k + 1) * chunk]
            for k in ((place - step) % ring.size for step in range(2 * ring.size - 1))
        ]
        here, colour, onward = ring.at(place), ring.incoming[place], ring.outgoing[place]
        program.do(here, *_receiver(chunks, ring.size, int(colour)), thread=_RECEIVER)
        program.do(here, *_sender(chunks, ring.size, int(onward)), thread=_SENDER)


def _receiver(chunks: list[Slice], size: int, colour: int) -> list[Instruction]:
    """Return the receiving script: the chunk received in step k is sent in step k + 1."""
    script: list[Instruction] = []
    for step in range(1, 2 * size - 1):
        into = chunks[step]
        script += [receive_add(into, colour) if step < size else receive(into, colour), Signal(0)]
    return script[:-1]


def _sender(chunks: list[Slice], size: int, colour: int) -> list[Instruction]:
    script: list[Instruction] = [send(chunks[0], colour)]
    for step in range(1, 2 * size - 2):
        script += [Wait(0), send(chunks[step], colour)]
    return script
