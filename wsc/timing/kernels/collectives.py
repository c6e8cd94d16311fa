"""Collectives on a line or a rectangle of PEs.

The model is that of Luczynski et al., "Near-Optimal Wafer-Scale Reduce", HPDC'24: a collective with
contention C (wavelets through the busiest PE), energy E (hops of all wavelets) over N links,
distance L and depth D takes

    max(C, E / N + L) + (2 T_R + 1) D    cycles.

There a hop and a wavelet take one cycle each; here both are parameters of the fabric. All functions
return cycles for ``wavelets`` of 32 bit per PE and ``pes`` PEs in a line, with programs already
running; the offset of a measured program is in ``programs``.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, isqrt, log2

from wsc.timing.hardware.fabric import FabricSpec


def depth_cycles(fabric: FabricSpec) -> int:
    """One PE on the critical path: up the ramp, one cycle of work, down the ramp."""
    return 2 * fabric.ramp_cycles + 1


def broadcast(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """From one end of a line to all PEs; the routers copy, no PE forwards."""
    return (
        fabric.cycles_per_wavelet * wavelets + fabric.hop_cycles * (pes - 1) + depth_cycles(fabric)
    )


def star(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Every PE sends to the root, which adds all."""
    line = fabric.cycles_per_wavelet
    nearest = line * wavelets * (pes - 1)
    farthest = fabric.hop_cycles * (pes - 1) + line * (wavelets - 1)
    return max(nearest, farthest) + depth_cycles(fabric)


def chain(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Each PE adds its values to those that pass on their way to the root."""
    return fabric.cycles_per_wavelet * wavelets + (fabric.hop_cycles + depth_cycles(fabric)) * (
        pes - 1
    )


def tree(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Pairs, pairs of pairs, and so on, in ceil(log2 P) rounds; each round waits for the last."""
    if pes == 1:
        return chain(fabric, pes, wavelets)
    rounds = ceil(log2(pes))
    load = fabric.cycles_per_wavelet * wavelets * rounds
    spread = load * pes / (2 * (pes - 1)) + fabric.hop_cycles * (pes - 1)
    return max(load, spread) + depth_cycles(fabric) * rounds


def two_phase(fabric: FabricSpec, pes: int, wavelets: float, group: int | None = None) -> float:
    """A chain in each group of ``group`` PEs, then a chain over the groups' roots.

    The default group is the square root of P. A group of one PE, or of all, is a chain.
    """
    group = group or isqrt(pes)
    if group == 1 or group >= pes:
        return chain(fabric, pes, wavelets)
    depth = group - 1 + ceil(pes / group) - 1
    return (
        2 * fabric.cycles_per_wavelet * wavelets
        + fabric.hop_cycles * (pes - 1)
        + depth_cycles(fabric) * depth
    )


@lru_cache(maxsize=4096)
def reduce(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """The fastest of star, chain, tree and two-phase for this length and size."""
    return min(form(fabric, pes, wavelets) for form in (star, chain, tree, two_phase))


def all_reduce(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """The fastest of reduce and broadcast, and the ring; nothing to do for a single PE."""
    if pes == 1:
        return 0.0
    to_root_and_back = reduce(fabric, pes, wavelets) + broadcast(fabric, pes, wavelets)
    return min(to_root_and_back, ring_all_reduce(fabric, pes, wavelets))


def ring_all_reduce(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Reduce-scatter and all-gather of P parts around a ring folded into the line."""
    return (
        2 * (pes - 1) * fabric.cycles_per_wavelet * wavelets / pes
        + fabric.hop_cycles * (4 * pes - 6)
        + 2 * (pes - 1) * depth_cycles(fabric)
    )


def broadcast_2d(fabric: FabricSpec, columns: int, rows: int, wavelets: float) -> float:
    """From one corner along the first row, and from there down every column."""
    turns = fabric.turn_cycles * (columns > 1 and rows > 1)
    return broadcast(fabric, columns + rows - 1, wavelets) + turns


def reduce_2d(fabric: FabricSpec, columns: int, rows: int, wavelets: float) -> float:
    """Along the rows, then down the first column (X-Y)."""
    return reduce(fabric, columns, wavelets) + reduce(fabric, rows, wavelets)


def snake_2d(fabric: FabricSpec, columns: int, rows: int, wavelets: float) -> float:
    """One chain through all PEs, row by row, back and forth; each hop ends in a PE, so no turns."""
    return chain(fabric, columns * rows, wavelets)
