"""All-reduce on a ring that is folded into a line: out over even positions, back over odd ones.

P - 1 steps of reduce-scatter and P - 1 of all-gather, each a chunk of words / P to the next PE of
the ring, two hops away (HPDC'24, timing model 2b: 2 (P - 1) words / P + 4 P - 6 + 2 (P - 1)
(2 T_R + 1)). One thread receives and adds, another sends what has become complete; each step also
waits for a set-up and a signal, which that formula leaves out.
"""

from __future__ import annotations

from csnode.fabric.collectives.paths import Path
from csnode.fabric.instructions import Instruction, Signal, Wait, receive, receive_add, send
from csnode.fabric.memory import Slice, SramArray
from csnode.fabric.program import Program
from csnode.fabric.routing import Port
from wsc.core.errors import ApplianceCompilationError

_RECEIVER, _SENDER = 0, 1


def add_ring_all_reduce(
    program: Program, path: Path, values: SramArray, colours: tuple[int, int, int, int]
) -> None:
    """Sum ``values`` over every line of ``path``, for all its PEs.

    Two colours lead out and two lead back. Raises ApplianceCompilationError when the array does
    not divide into one chunk of whole words per PE.
    """
    size = path.length
    chunk, rest = divmod(values.length, size)
    if rest or chunk % values.dtype.per_word:
        raise ApplianceCompilationError(
            f"array {values.name!r} does not divide among the PEs of a ring",
            value=f"{values.length} elements, {size} PEs",
            rule="one chunk of whole 32-bit words per PE",
            remedy="pad the array",
        )
    ring = [*range(0, size, 2), *reversed(range(1, size, 2))]
    links = [_colour(ring, place, colours) for place in range(size if size > 1 else 0)]
    for place in range(len(links)):
        _route(program, path, ring[place], ring[(place + 1) % size], links[place])
    for place, onward in enumerate(links):
        chunks = [
            values[k * chunk : (k + 1) * chunk]
            for k in ((place - step) % size for step in range(2 * size - 1))
        ]
        here = path.at(ring[place])
        program.do(here, *_receiver(chunks, size, links[place - 1]), thread=_RECEIVER)
        program.do(here, *_sender(chunks, size, onward), thread=_SENDER)


def _receiver(chunks: list[Slice], size: int, colour: int) -> list[Instruction]:
    """What comes in step k is what goes out in step k + 1."""
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


def _colour(ring: list[int], place: int, colours: tuple[int, int, int, int]) -> int:
    """Neighbours in the ring differ, and so do the ways out and back."""
    outward = ring[(place + 1) % len(ring)] > ring[place]
    return colours[(0 if outward else 2) + place % 2]


def _route(program: Program, path: Path, start: int, end: int, colour: int) -> None:
    """From one core over the routers between to another one."""
    step = 1 if end > start else -1
    ports = path.away if step > 0 else path.toward
    back = path.toward if step > 0 else path.away
    program.route(colour, path.at(start), Port.RAMP, ports[start])
    for position in range(start + step, end, step):
        program.route(colour, path.at(position), back[position], ports[position])
    program.route(colour, path.at(end), back[end], Port.RAMP)
