"""Closed forms of collectives on a line or a rectangle of PEs.

Model of Luczynski et al., "Near-Optimal Wafer-Scale Reduce", HPDC'24
(``validation.published_programs.hpdc`` has the paper's formulas): a wavelet takes ``hop_cycles``
from router to router and ``2 T_R + 1`` cycles up the ramp of a PE, through it and down again; on a
wire, one wavelet follows another after ``cycles_per_wavelet``.

The paper counts no time between two additions of one PE. Here the second addition starts after the
set-up of a vector instruction, and takes in the wavelets queued in front of it at one per cycle,
however slow the wire. Algorithms in which no PE adds twice (chain, broadcast) cost what the paper
says. A star has one hop more than in the paper, so that two PEs cost as much as a chain of two.

All functions return cycles, from the first wavelet sent to the last result, for ``wavelets`` of
32 bits per PE on a line of ``pes`` PEs whose root is at one end. A partly filled wavelet counts as
one. A line of one PE takes 0 cycles.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, floor

from waferstream.machine.hardware.fabric import FabricSpec


def depth_cycles(fabric: FabricSpec) -> int:
    """Return the cycles of one PE on the critical path: up the ramp, one of work, down the ramp."""
    return 2 * fabric.ramp_cycles + 1


def stream_cycles(fabric: FabricSpec, wavelets: float) -> int:
    """Return the cycles from the first wavelet of a stream to the end of the last.

    Each wavelet but the first waits for the wire, and moves in the cycle in which the wire is free.
    """
    return floor(fabric.cycles_per_wavelet * (ceil(wavelets) - 1)) + 1


def broadcast(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Return the cycles of a broadcast from one end; routers copy, so no PE forwards."""
    return stream_cycles(fabric, wavelets) + _latency(fabric, pes - 1) if pes > 1 else 0.0


def star(fabric: FabricSpec, pes: int, wavelets: float, *, after_broadcast: bool = False) -> float:
    """Return the cycles of a reduce in which every PE sends to the root.

    The root adds all streams in one instruction.

    Args:
        after_broadcast: PEs start when a broadcast from the root reaches them, nearest first.
            Cycles count from the start of the farthest PE; by then, wavelets of nearer PEs have
            arrived at the root.
    """
    if pes == 1:
        return 0.0
    head_start = fabric.hop_cycles * (pes - 2) if after_broadcast else 0
    root_is_busy = _latency(fabric, 1) + stream_cycles(fabric, ceil(wavelets) * (pes - 1))
    farthest_arrives = _latency(fabric, pes - 1) + stream_cycles(fabric, wavelets)
    return max(root_is_busy - head_start, farthest_arrives)


def chain(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Return the cycles of a reduce in which each PE adds its values to the passing stream."""
    return stream_cycles(fabric, wavelets) + _latency(fabric, 1) * (pes - 1) if pes > 1 else 0.0


def binomial(
    fabric: FabricSpec,
    pes: int,
    wavelets: float,
    *,
    restart: float | None = None,
    forward_restart: float | None = None,
) -> float:
    """Return the cycles of a reduce by a binomial tree: each PE adds subtrees of 1, 2, 4, ... PEs.

    Subtrees of 8 PEs, which their parents (+) add nearest first::

        PE     0   1   2   3   4   5   6   7
        k = 0  +<--*   +<--*   +<--*   +<--*      subtrees of 2^0 PEs, 2^0 hops
        k = 1  +<------*       +<------*          subtrees of 2^1 PEs, 2^1 hops
        k = 2  +<--------------*                  subtree of 2^2 PEs, 2^2 hops

    A PE starts an addition ``restart`` cycles after the end of the one before. It adds in place,
    except that a PE other than the root forwards its last sum while it adds::

        PE 4   |add 5 in place|--forward_restart--|add 6 and forward the sum to PE 0|
        PE 0   |add 1 in place|--restart--|add 2 in place|--restart--|add 4 in place|

    If P is not a power of two, the subtrees of the root are the powers of two that make up P - 1.

    Args:
        restart: Cycles between two additions, the second in place; by default the set-up of a
            vector instruction.
        forward_restart: Cycles between two additions, the second forwarded; ``restart`` by default.
    """
    if pes == 1:
        return 0.0
    restart = fabric.vector_setup_cycles if restart is None else restart
    forward_restart = restart if forward_restart is None else forward_restart
    # sends[k]: when the root of a subtree of 2^k PEs sends the first wavelet of its sum
    sends = [0.0]
    end: float | None = None  # end of the addition in place of the subtree before
    for k in range((pes - 1).bit_length() - 1):
        arrives = sends[k] + _latency(fabric, 2**k)
        sends.append(_start(arrives, end, forward_restart))
        end = _addition_end(fabric, wavelets, arrives, _start(arrives, end, restart))
    end, distance = None, 1
    for k, first in enumerate(sends):
        if (pes - 1) >> k & 1:
            arrives = first + _latency(fabric, distance)
            end = _addition_end(fabric, wavelets, arrives, _start(arrives, end, restart))
            distance += 2**k
    assert end is not None, "pes - 1 has a bit"
    return end


def two_phase(
    fabric: FabricSpec,
    pes: int,
    wavelets: float,
    group: int | None = None,
    *,
    restart: float | None = None,
) -> float:
    """Return the cycles of a reduce by a chain in each group, then a chain over the groups' roots.

    Twelve PEs in groups of four::

        phase 1   0<--1<--2<--3   4<--5<--6<--7   8<--9<-10<-11   in all groups at once
        phase 2   0<--------------4<--------------8               from root to root

        root 8    |forward at once|
        root 4    |add phase 1 in memory|--restart--|add 8 and forward the sum|
        root 0    |add phase 1 in memory|           |--restart--|add 4 in memory|

    The last group, which may be smaller, has nothing to wait for, so its root forwards the sum of
    phase 1 as it comes. Every other root first adds it in memory.

    Args:
        group: PEs of a group, by default the square root of P. A group of one PE, or of all, makes
            a chain; three PEs in groups of two make a star.
        restart: Cycles between the two additions of a root, as in ``binomial``.
    """
    group = group or round(pes**0.5)
    if group == 1 or group >= pes:
        return chain(fabric, pes, wavelets)
    if (pes, group) == (3, 2):
        return star(fabric, pes, wavelets)
    restart = fabric.vector_setup_cycles if restart is None else restart
    groups = ceil(pes / group)
    to_next_root = _latency(fabric, group)
    last_root_sends = _latency(fabric, 1) * ((pes - 1) % group)
    arrives = last_root_sends + to_next_root
    ahead = _wavelets_ahead(fabric, wavelets, group, last_root_sends)
    added_in_memory = _latency(fabric, 1) * (group - 1) + stream_cycles(
        fabric, ceil(wavelets) + ahead
    )
    starts = _start(arrives, added_in_memory, restart)
    if groups == 2:
        return _addition_end(fabric, wavelets, arrives, starts)
    return starts + to_next_root * (groups - 2) + stream_cycles(fabric, wavelets)


def _wavelets_ahead(fabric: FabricSpec, wavelets: float, group: int, last_root_sends: float) -> int:
    """Return the wavelets of the last group that delay phase 1 of the group before on a wire.

    Streams of both groups travel on two colours that alternate from PE to PE. In a group of odd
    size, the last PE of a group receives nothing, so its router lets wavelets on its neighbour's
    colour pass. The neighbour's router stops them until the neighbour has sent, so no more pass
    than its queue holds. In a group of even size, that colour is the one on which the last PE
    itself sends first, so none pass.
    """
    if group % 2 == 0:
        return 0
    sent_before = floor((last_root_sends + fabric.hop_cycles) / fabric.cycles_per_wavelet)
    return min(fabric.queue_wavelets + fabric.hop_cycles, max(0, ceil(wavelets) - sent_before))


@lru_cache(maxsize=4096)
def reduce(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Return the cycles of the fastest of star, chain, binomial tree and two-phase."""
    return min(algorithm(fabric, pes, wavelets) for algorithm in (star, chain, binomial, two_phase))


def reduce_after_broadcast(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Return the cycles of a reduce that follows a broadcast from the root, as in ``star``.

    Other algorithms wait for the farthest PE anyway, so only a star gains.
    """
    fastest = reduce(fabric, pes, wavelets)
    if fastest < star(fabric, pes, wavelets):
        return fastest
    return star(fabric, pes, wavelets, after_broadcast=True)


def all_reduce(
    fabric: FabricSpec, pes: int, wavelets: float, *, after_broadcast: bool = False
) -> float:
    """Return the cycles of the faster of reduce plus broadcast, and of the ring."""
    to_root = (reduce_after_broadcast if after_broadcast else reduce)(fabric, pes, wavelets)
    to_root_and_back = to_root + broadcast(fabric, pes, wavelets)
    return min(to_root_and_back, ring_all_reduce(fabric, pes, wavelets))


def ring_all_reduce(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Return the cycles of reduce-scatter and all-gather around a ring folded into the line.

    In each of the 2 (P - 1) steps a PE stores one of P parts; a cycle later, a signal starts the
    thread that sends the part on. The critical path leads around the ring twice, less two links.
    Neighbours in the ring are two hops apart, except for the two at each end of the line.
    """
    if pes == 1:
        return 0.0
    steps = 2 * (pes - 1)
    hops = 4 * pes - 6 - (pes > 3)
    each = stream_cycles(fabric, wavelets / pes) + depth_cycles(fabric)
    restarts = (steps - 1) * (fabric.vector_setup_cycles + 1)
    return steps * each + restarts + fabric.hop_cycles * hops


def broadcast_2d(fabric: FabricSpec, columns: int, rows: int, wavelets: float) -> float:
    """Return the cycles of a broadcast from one corner: along the first row, then down columns."""
    turns = fabric.turn_cycles * (columns > 1 and rows > 1)
    return broadcast(fabric, columns + rows - 1, wavelets) + turns


def reduce_2d(fabric: FabricSpec, columns: int, rows: int, wavelets: float) -> float:
    """Return the cycles of an X-Y reduce: along the rows, then down the first column."""
    return reduce(fabric, columns, wavelets) + reduce(fabric, rows, wavelets)


def snake_reduce(fabric: FabricSpec, columns: int, rows: int, wavelets: float) -> float:
    """Return the cycles of one chain through all PEs, row by row, back and forth.

    Every hop ends in a PE, so no wavelet turns in a router.
    """
    return chain(fabric, columns * rows, wavelets)


def _latency(fabric: FabricSpec, hops: int) -> int:
    """Return the cycles from a PE's addition of a wavelet to that of a PE ``hops`` away."""
    return fabric.hop_cycles * hops + depth_cycles(fabric)


def _start(arrives: float, end_of_previous: float | None, restart: float) -> float:
    """Return when a PE starts to add a stream that ``arrives``; None: it added nothing before."""
    return arrives if end_of_previous is None else max(arrives, end_of_previous + restart)


def _addition_end(fabric: FabricSpec, wavelets: float, arrives: float, starts: float) -> float:
    """Return when a PE has added a stream that it ``starts`` to take in after it ``arrives``.

    Until the PE starts, wavelets fill two queues (of the last router and of the core) and the wires
    into them, with one slot per cycle of wire. The wire before them stops when they are full, and
    goes on two cycles after they begin to drain::

        arrives             starts
        |--queues fill--|...|--queued: 1 wavelet per cycle--|--behind: at the rate of the wire--|
    """
    wire_slots = fabric.hop_cycles + fabric.ramp_cycles
    queued = 2 * fabric.queue_wavelets + wire_slots
    behind = 2 + wire_slots + stream_cycles(fabric, ceil(wavelets) - queued)
    return max(arrives + stream_cycles(fabric, wavelets), starts + max(ceil(wavelets), behind))
