"""Cycles of the three building blocks: all-reduce, matrix-vector product, matrix product.

Elements are fp16; one wavelet carries two.
"""

from __future__ import annotations

from math import ceil, isqrt
from typing import NamedTuple

from waferstream.machine.hardware import FabricSpec
from waferstream.machine.regions.decoder import ELEMENT_BYTES
from waferstream.machine.regions.region import PeCosts, Region

SHIFT_HOPS = 2
"""Hops to a neighbour of the logical ring, which is interleaved; He et al., section 5.2."""

ROOT_PASSES = 6
"""Passes of a vector through the roots of the tree, one after the other: from both sides in each of
its two phases, and out to both sides in the broadcast."""


class Cycles(NamedTuple):
    """Cycles by what takes them."""

    compute: float
    fabric: float

    @property
    def total(self) -> float:
        """All of them."""
        return self.compute + self.fabric


def link_cycles(elements: float, fabric: FabricSpec) -> float:
    """Return the cycles of a vector of fp16 elements over one link."""
    return ceil(elements * ELEMENT_BYTES / fabric.wavelet_bytes) * fabric.cycles_per_wavelet


def groups(side: int) -> int:
    """Return the groups of a tree of depth two: the largest divisor of ``side`` up to its root.

    The published configurations follow this rule (540 PEs: 20 groups of 27) except one, of 512
    PEs, which swaps both numbers at the same cost.
    """
    return max(number for number in range(1, isqrt(side) + 1) if side % number == 0)


def all_reduce_cycles(elements: float, region: Region, costs: PeCosts) -> float:
    """Return the cycles of an all-reduce of a vector along a row or column of the region.

    Partial sums travel to the root of their group, its middle PE, then from group to group to the
    root of the middle group, which broadcasts the sum. The longest path leads from the first PE to
    the root and back: its hops, plus two ramps and a cycle for each PE that adds and for the
    broadcast (He et al., section 6; 2 T_R + 1 of Luczynski et al.).
    """
    fabric = region.fabric
    num_groups = groups(region.side)
    group_size = region.side // num_groups
    group_adders, root_adders = group_size // 2, num_groups // 2
    root = root_adders * group_size + group_adders
    return (
        costs.reduce_setup_cycles
        + 2 * root * fabric.hop_cycles
        + (group_adders + root_adders + 1) * (2 * fabric.ramp_cycles + 1)
        + ROOT_PASSES * link_cycles(elements, fabric)
    )


def matvec_cycles(rows: int, columns: int, costs: PeCosts) -> float:
    """Return the cycles of a vector times a tile of ``rows x columns``: one mapped fma per row."""
    return costs.map_setup_cycles + rows * (costs.column_cycles + columns * costs.mac_cycles)


def mesh_matvec_cycles(rows: int, columns: int, region: Region, costs: PeCosts) -> Cycles:
    """Return the cycles of MeshGEMV: a vector of ``rows`` times a matrix spread over the region."""
    tile = region.tile(columns)
    local = matvec_cycles(region.tile(rows), tile, costs)
    return Cycles(local, all_reduce_cycles(tile, region, costs))


def matmul_cycles(m: int, k: int, n: int, region: Region, costs: PeCosts) -> Cycles:
    """Return the cycles of MeshGEMM's compute-shift loop with tiles m x k and k x n.

    The loop has one step per PE of a row. A step multiplies its tiles while both shift to the next
    neighbour, and costs the longer of the two (He et al., section 5.3); what the shift takes
    longer is the fabric's.
    """
    compute = k * (costs.loop_cycles + n * (costs.column_cycles + m * costs.mac_cycles))
    shift = _shift_cycles(max(m * k, k * n), region.fabric)
    exposed = max(0.0, shift - compute)
    return Cycles(region.side * (costs.step_cycles + compute), region.side * exposed)


def alignment_cycles(elements: int, region: Region, costs: PeCosts) -> float:
    """Return the cycles to align left tiles with the start of the loop: half a ring at most."""
    steps = region.side // 2
    return steps * (costs.step_cycles + _shift_cycles(elements, region.fabric))


def _shift_cycles(elements: int, fabric: FabricSpec) -> float:
    """Return the cycles to send a tile to the next neighbour of the logical ring."""
    distance = SHIFT_HOPS * fabric.hop_cycles + 2 * fabric.ramp_cycles
    return distance + link_cycles(elements, fabric)
