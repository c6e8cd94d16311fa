"""Collectives on a line or a rectangle of PEs, from what PEs and routers do.

A wavelet takes ``hop_cycles`` from router to router and ``2 T_R + 1`` cycles up the ramp of a PE,
through it, and down again; on a wire, one follows the other after ``cycles_per_wavelet``. That is
the model of Luczynski et al., "Near-Optimal Wafer-Scale Reduce", HPDC'24 (``hpdc`` has its
formulas), which counts no time between two additions of one PE; here the second starts a vector
instruction's set-up after the end of the first, and takes what has queued up in front of it by
then at one wavelet per cycle, however slow the wire. Forms without such a PE (chain, broadcast)
are those of the paper; a star has one hop more than there, so that two PEs take as long as a chain
of two.

All functions return cycles for ``wavelets`` of 32 bit per PE and ``pes`` PEs in a line, the root at
its end, from the first wavelet sent to the last result. A wavelet that is not full counts as one. A
line of one PE has nothing to do.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, floor

from timing.hardware.fabric import FabricSpec


def depth_cycles(fabric: FabricSpec) -> int:
    """One PE on the critical path: up the ramp, one cycle of work, down the ramp."""
    return 2 * fabric.ramp_cycles + 1


def broadcast(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """From one end of a line to all PEs; the routers copy, no PE forwards."""
    return stream_cycles(fabric, wavelets) + _way(fabric, pes - 1) if pes > 1 else 0.0


def star(fabric: FabricSpec, pes: int, wavelets: float, *, in_a_wave: bool = False) -> float:
    """Every PE sends to the root, which adds all in one instruction.

    ``in_a_wave``: PEs start when a broadcast from the root has reached them. Cycles count from the
    farthest one's start; what the root takes in one by one has begun to arrive by then.
    """
    if pes == 1:
        return 0.0
    earlier = fabric.hop_cycles * (pes - 2) if in_a_wave else 0
    nearest = _way(fabric, 1) + stream_cycles(fabric, ceil(wavelets) * (pes - 1)) - earlier
    farthest = _way(fabric, pes - 1) + stream_cycles(fabric, wavelets)
    return max(nearest, farthest)


def chain(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Each PE adds its values to those that pass on their way to the root."""
    return stream_cycles(fabric, wavelets) + _way(fabric, 1) * (pes - 1) if pes > 1 else 0.0


def binomial(
    fabric: FabricSpec,
    pes: int,
    wavelets: float,
    *,
    restart: float | None = None,
    onward_restart: float | None = None,
) -> float:
    """Every PE adds subtrees of 1, 2, 4, ... PEs, nearest first.

    A PE finishes one addition before it starts the next, ``restart`` cycles later; the set-up of a
    vector instruction unless a program tells otherwise. All additions of a PE but its last are in
    place; a PE other than the root passes on its last, which starts ``onward_restart`` cycles after
    the one before (``restart`` by default). The root's subtrees are the powers of two that make up
    P - 1.
    """
    if pes == 1:
        return 0.0
    in_place = _restart(fabric, restart)
    onward = in_place if onward_restart is None else onward_restart
    sends = [0.0]  # when a subtree of 2^k PEs sends its first wavelet
    done: float | None = None
    for k in range((pes - 1).bit_length() - 1):
        arrives = sends[k] + _way(fabric, 2**k)
        sends.append(_starts(arrives, done, onward))
        done = _taken_in(fabric, wavelets, arrives, _starts(arrives, done, in_place))
    done, distance = None, 1
    for k, first in enumerate(sends):
        if (pes - 1) >> k & 1:
            arrives = first + _way(fabric, distance)
            done = _taken_in(fabric, wavelets, arrives, _starts(arrives, done, in_place))
            distance += 2**k
    assert done is not None, "pes - 1 has a bit"
    return done


def two_phase(
    fabric: FabricSpec,
    pes: int,
    wavelets: float,
    group: int | None = None,
    *,
    restart: float | None = None,
) -> float:
    """A chain in each group of ``group`` PEs, then a chain over the groups' roots.

    The last group, which may be smaller, passes its sum on at once. Every other root first adds its
    group's sum in memory and starts the addition that passes on ``restart`` cycles later, as in
    ``binomial``. The default group is the square root of P. A group of one PE, or of all, is a
    chain; three PEs in groups of two are a star.
    """
    group = group or round(pes**0.5)
    if group == 1 or group >= pes:
        return chain(fabric, pes, wavelets)
    if (pes, group) == (3, 2):
        return star(fabric, pes, wavelets)
    groups = ceil(pes / group)
    last_sends, to_next_root = _way(fabric, 1) * ((pes - 1) % group), _way(fabric, group)
    arrives = last_sends + to_next_root
    ahead = _sent_ahead(fabric, wavelets, group, last_sends)
    in_memory = _way(fabric, 1) * (group - 1) + stream_cycles(fabric, ceil(wavelets) + ahead)
    starts = _starts(arrives, in_memory, _restart(fabric, restart))
    if groups == 2:
        return _taken_in(fabric, wavelets, arrives, starts)
    return starts + to_next_root * (groups - 2) + stream_cycles(fabric, wavelets)


def _sent_ahead(fabric: FabricSpec, wavelets: float, group: int, last_sends: float) -> int:
    """Wavelets of the last group that take turns on a wire with those of the group before.

    Both are under way on two colours. In a group of odd size the last PE, which receives nothing,
    lets pass what is on the colour of its neighbour; the neighbour's router holds that up until the
    neighbour has sent, so that no more pass than its queue has slots. In a group of even size the
    colour is that on which the last PE itself sends first.
    """
    if group % 2 == 0:
        return 0
    passed = floor((last_sends + fabric.hop_cycles) / fabric.cycles_per_wavelet)
    return min(fabric.queue_wavelets + fabric.hop_cycles, max(0, ceil(wavelets) - passed))


@lru_cache(maxsize=4096)
def reduce(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """The fastest of star, chain, binomial tree and two-phase for this length and size."""
    return min(form(fabric, pes, wavelets) for form in (star, chain, binomial, two_phase))


def reduce_in_a_wave(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """The same right after a broadcast from the root, which helps a star alone."""
    fastest = reduce(fabric, pes, wavelets)
    if fastest < star(fabric, pes, wavelets):
        return fastest
    return star(fabric, pes, wavelets, in_a_wave=True)


def all_reduce(fabric: FabricSpec, pes: int, wavelets: float, *, in_a_wave: bool = False) -> float:
    """The faster of reduce and broadcast, and of the ring."""
    to_root = (reduce_in_a_wave if in_a_wave else reduce)(fabric, pes, wavelets)
    to_root_and_back = to_root + broadcast(fabric, pes, wavelets)
    return min(to_root_and_back, ring_all_reduce(fabric, pes, wavelets))


def ring_all_reduce(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Reduce-scatter and all-gather of P parts around a ring folded into the line.

    In each of 2 (P - 1) steps a PE stores a part; a cycle later another of its threads, told by a
    signal, sends it on. That is two rounds but for two links, and neighbours in the ring are two
    hops apart, save the two at each end of the line.
    """
    if pes == 1:
        return 0.0
    steps = 2 * (pes - 1)
    hops = 4 * pes - 6 - (pes > 3)
    each = stream_cycles(fabric, wavelets / pes) + depth_cycles(fabric)
    restarts = (steps - 1) * (_restart(fabric, None) + 1)
    return steps * each + restarts + fabric.hop_cycles * hops


def broadcast_2d(fabric: FabricSpec, columns: int, rows: int, wavelets: float) -> float:
    """From one corner along the first row, and from there down every column."""
    turns = fabric.turn_cycles * (columns > 1 and rows > 1)
    return broadcast(fabric, columns + rows - 1, wavelets) + turns


def reduce_2d(fabric: FabricSpec, columns: int, rows: int, wavelets: float) -> float:
    """Along the rows, then down the first column (X-Y)."""
    return reduce(fabric, columns, wavelets) + reduce(fabric, rows, wavelets)


def snake_reduce(fabric: FabricSpec, columns: int, rows: int, wavelets: float) -> float:
    """One chain through all PEs, row by row, back and forth; each hop ends in a PE, so no turns."""
    return chain(fabric, columns * rows, wavelets)


def stream_cycles(fabric: FabricSpec, wavelets: float) -> int:
    """From the first wavelet of a stream to behind the last: each but the first waits for the wire.

    A wavelet moves in the cycle in which the wire becomes free.
    """
    return floor(fabric.cycles_per_wavelet * (ceil(wavelets) - 1)) + 1


def _taken_in(fabric: FabricSpec, wavelets: float, arrives: float, starts: float) -> float:
    """When a PE has added a stream that it ``starts`` to take in after it ``arrives``.

    What has to wait fills the queues of the last router and the core, with one slot for each cycle
    of the wires into them. When they drain, the wire before them goes on two cycles later.
    """
    into_queues = fabric.hop_cycles + fabric.ramp_cycles
    queued = 2 * fabric.queue_wavelets + into_queues
    behind = 2 + into_queues + stream_cycles(fabric, ceil(wavelets) - queued)
    return max(arrives + stream_cycles(fabric, wavelets), starts + max(ceil(wavelets), behind))


def _starts(arrives: float, before: float | None, restart: float) -> float:
    """When a PE starts to add what ``arrives``, if another addition ended ``before``."""
    return arrives if before is None else max(arrives, before + restart)


def _way(fabric: FabricSpec, hops: int) -> int:
    """From one PE's addition to that of another."""
    return fabric.hop_cycles * hops + depth_cycles(fabric)


def _restart(fabric: FabricSpec, restart: float | None) -> float:
    return fabric.vector_setup_cycles if restart is None else restart
