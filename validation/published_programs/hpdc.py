"""Formulas of Luczynski et al., "Near-Optimal Wafer-Scale Reduce", HPDC'24.

A collective with contention C (wavelets through the busiest PE), energy E (hops of all wavelets)
over N links, distance L and depth D takes

    max(C, E / N + L) + (2 T_R + 1) D    cycles.

Tuned programs on a CS-2 are within 4 % of it (K0054). ``waferstream.machine.kernels.collectives``
also counts what programs do between two additions; chain and broadcast are the same in both.
"""

from __future__ import annotations

from math import ceil, log2

from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels.collectives import depth_cycles


def cost(
    fabric: FabricSpec, contention: float, energy: float, links: int, distance: int, depth: int
) -> float:
    """Return the cycles of the model: ``max(C, E / N + L) + (2 T_R + 1) D`` (see the module)."""
    line = fabric.cycles_per_wavelet
    spread = line * energy / links + fabric.hop_cycles * distance
    return max(line * contention, spread) + depth_cycles(fabric) * depth


def tree(fabric: FabricSpec, pes: int, wavelets: float) -> float:
    """Return the cycles of a binary tree in log2 P rounds; at least two PEs."""
    rounds = ceil(log2(pes))
    load = wavelets * rounds
    return cost(fabric, load, load * pes / 2, pes - 1, pes - 1, rounds)


def two_phase(fabric: FabricSpec, pes: int, wavelets: float, group: int | None = None) -> float:
    """Return the cycles of chains in groups (sqrt(P) PEs by default), then over their roots."""
    group = group or round(pes**0.5)
    depth = group - 1 + ceil(pes / group) - 1
    return cost(fabric, 0.0, 2 * wavelets * (pes - 1), pes - 1, pes - 1, depth)
