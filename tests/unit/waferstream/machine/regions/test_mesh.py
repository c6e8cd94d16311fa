"""Cycles of the building blocks: trees, reductions, matrix products."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.machine.hardware import WSE2, WSE3
from waferstream.machine.regions.mesh import (
    alignment_cycles,
    all_reduce_cycles,
    groups,
    link_cycles,
    matmul_cycles,
    matvec_cycles,
    mesh_matvec_cycles,
)
from waferstream.machine.regions.region import PE_COSTS, Region

PUBLISHED = [  # side, groups, padded width and feed-forward width of LLaMA3-8B
    (300, 15, 4200, 14400),
    (360, 18, 4320, 14400),
    (420, 20, 4200, 14700),
    (480, 20, 4320, 14400),
    (540, 20, 4320, 14580),
    (600, 24, 4200, 14400),
    (660, 22, 4620, 14520),
    (720, 24, 4320, 14400),
]


@pytest.mark.parametrize(("side", "num_groups", "dim", "ffn"), PUBLISHED)
def test_groups_and_tiles_match_the_published_configurations(
    side: int, num_groups: int, dim: int, ffn: int
) -> None:
    """Extents are padded to a multiple of the side; groups are the divisor next to its root."""
    region = Region(side)
    assert groups(side) == num_groups
    assert (side * region.tile(4096), side * region.tile(14336)) == (dim, ffn)


def test_link_cycles_pack_two_fp16_in_a_wavelet() -> None:
    """Five fp16 elements take three wavelets, 1.125 cycles each on a WSE-3."""
    assert link_cycles(5, WSE2) == 3
    assert link_cycles(5, WSE3) == pytest.approx(3 * 1.125)


def test_all_reduce_cycles_of_one_region_term_by_term() -> None:
    """420 PEs in 20 groups of 21: the root is PE 220; 10 + 10 PEs add, and one broadcasts."""
    expected = PE_COSTS.reduce_setup_cycles + 2 * 220 + 21 * 5 + 6 * 15
    assert all_reduce_cycles(30, Region(420), PE_COSTS) == expected


def test_matvec_cycles_match_single_tile_measurements() -> None:
    """A mapped column costs its multiply-adds and its issue."""
    one, two = (matvec_cycles(rows, 32, PE_COSTS) for rows in (1, 2))
    assert two - one == pytest.approx(PE_COSTS.column_cycles + 32 * PE_COSTS.mac_cycles)


def test_mesh_matvec_cycles_predict_the_published_gemv() -> None:
    """K0552: 0.0012 ms for 16K x 16K, two digits, for one of the plausible sides; the row states none."""
    sides = range(480, 721, 60)
    milliseconds = [
        1e3 * Region(side).seconds(mesh_matvec_cycles(16384, 16384, Region(side), PE_COSTS).total)
        for side in sides
    ]
    assert min(milliseconds) == pytest.approx(0.0012, rel=0.10)


def test_matmul_cycles_take_the_longer_of_product_and_shift() -> None:
    """A product of one column hardly computes: then the left tile on the link decides."""
    region = Region(100)
    product = PE_COSTS.loop_cycles + PE_COSTS.column_cycles + 1000 * PE_COSTS.mac_cycles
    slow = 100 * (PE_COSTS.step_cycles + product)
    assert matmul_cycles(1000, 1, 1, region, PE_COSTS).total == pytest.approx(slow)
    free = PE_COSTS.model_copy(update={"mac_cycles": 1e-9, "loop_cycles": 0.0})
    shift = 2 + 4 + 500
    assert matmul_cycles(1000, 1, 1, region, free).total == 100 * (PE_COSTS.step_cycles + shift)
    free = free.model_copy(update={"column_cycles": 0.0})
    wide = 2 + 4 + 1000  # the right tile is the larger one
    assert matmul_cycles(1, 2, 1000, region, free).total == 100 * (PE_COSTS.step_cycles + wide)


def test_alignment_cycles_shift_half_the_ring() -> None:
    """240 shifts of 41 wavelets over two hops and two ramps in a region of 480."""
    assert alignment_cycles(81, Region(480), PE_COSTS) == 240 * (PE_COSTS.step_cycles + 6 + 41)


@given(st.integers(3, 750), st.integers(1, 100), st.integers(1, 100))
def test_all_reduce_cycles_grow_with_the_elements(side: int, elements: int, more: int) -> None:
    """On any side, prime ones included."""
    region = Region(side)
    fewer = all_reduce_cycles(elements, region, PE_COSTS)
    assert fewer <= all_reduce_cycles(elements + more, region, PE_COSTS)
    assert fewer > 2 * (side // 2)
