"""The building blocks: trees of the published configurations, reductions, matrix products."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baselines.wafer_inference import PE_COSTS, Decoder, Region
from baselines.wafer_inference.mesh import (
    alignment_cycles,
    all_reduce_cycles,
    groups,
    link_cycles,
    matmul_cycles,
    matvec_cycles,
    mesh_matvec_cycles,
)
from timing.hardware import WSE2, WSE3, FabricSpec
from wsc.core.errors import ConfigError

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
def test_padding_and_groups_are_those_of_the_published_configurations(side, num_groups, dim, ffn):
    """Extents go up to the next multiple of the side; groups are the divisor next to its root."""
    region = Region(side)
    assert groups(side) == num_groups
    assert (side * region.tile(4096), side * region.tile(14336)) == (dim, ffn)


def test_two_halves_ride_in_one_wavelet():
    """Five fp16 elements take three wavelets, 1.125 cycles each on a WSE-3."""
    assert link_cycles(5, WSE2) == 3
    assert link_cycles(5, WSE3) == pytest.approx(3 * 1.125)


def test_an_all_reduce_written_out():
    """420 PEs in 20 groups of 21: the root is PE 220; 10 + 10 PEs add, and one broadcasts."""
    expected = PE_COSTS.reduce_setup_cycles + 2 * 220 + 21 * 5 + 6 * 15
    assert all_reduce_cycles(30, Region(420), PE_COSTS) == expected


def test_a_local_product_follows_the_single_tile_measurements():
    """A mapped column costs its multiply-adds and its issue; nothing else grows."""
    one, two = (matvec_cycles(rows, 32, PE_COSTS) for rows in (1, 2))
    assert two - one == pytest.approx(PE_COSTS.column_cycles + 32 * PE_COSTS.mac_cycles)


def test_the_published_gemv_is_met_without_a_fit_to_it():
    """K0552: 0.0012 ms for 16K x 16K, two digits, at some side that the row does not say."""
    sides = range(480, 721, 60)
    milliseconds = [
        1e3 * Region(side).seconds(mesh_matvec_cycles(16384, 16384, Region(side), PE_COSTS))
        for side in sides
    ]
    assert min(milliseconds) == pytest.approx(0.0012, rel=0.10)


def test_a_step_costs_the_longer_of_product_and_shift():
    """A product of one column hardly computes: then the left tile on the link decides."""
    region = Region(100)
    product = PE_COSTS.loop_cycles + PE_COSTS.column_cycles + 1000 * PE_COSTS.mac_cycles
    slow = 100 * (PE_COSTS.step_cycles + product)
    assert matmul_cycles(1000, 1, 1, region, PE_COSTS) == pytest.approx(slow)
    free = PE_COSTS.model_copy(update={"mac_cycles": 1e-9, "loop_cycles": 0.0})
    shift = 2 + 4 + 500
    assert matmul_cycles(1000, 1, 1, region, free) == 100 * (PE_COSTS.step_cycles + shift)
    free = free.model_copy(update={"column_cycles": 0.0})
    wide = 2 + 4 + 1000  # the right tile is the larger one
    assert matmul_cycles(1, 2, 1000, region, free) == 100 * (PE_COSTS.step_cycles + wide)


def test_an_alignment_goes_half_round_the_ring():
    """240 shifts of 41 wavelets over two hops and two ramps in a region of 480."""
    assert alignment_cycles(81, Region(480), PE_COSTS) == 240 * (PE_COSTS.step_cycles + 6 + 41)


@given(st.integers(3, 750), st.integers(1, 100), st.integers(1, 100))
def test_an_all_reduce_never_gets_faster_with_more_to_reduce(side, elements, more):
    """On any side, prime ones included."""
    region = Region(side)
    fewer = all_reduce_cycles(elements, region, PE_COSTS)
    assert fewer <= all_reduce_cycles(elements + more, region, PE_COSTS)
    assert fewer > 2 * (side // 2)


@pytest.mark.parametrize("side", [0, 2, 751, -1])
def test_a_region_that_the_wafer_cannot_hold_is_refused(side):
    """The grid of a WSE-2 is 750 PEs wide; two-hop shifts need three PEs."""
    with pytest.raises(ConfigError, match="does not fit the wafer") as refusal:
        Region(side)
    assert refusal.value.value == str(side)


def test_a_region_fits_the_shorter_side_of_the_wafer():
    """Whichever side that is."""
    for columns, rows in ((9, 5), (5, 9)):
        fabric = FabricSpec(columns=columns, rows=rows)
        assert Region(5, fabric).side == 5
        with pytest.raises(ConfigError, match="does not fit the wafer"):
            Region(6, fabric)


@pytest.mark.parametrize("field", ["dim", "ffn", "layers", "kv_dim"])
def test_a_decoder_without_extent_is_refused(field):
    """Each number has to be positive, and the error says which is not."""
    extents = {"dim": 8, "ffn": 8, "layers": 1, "kv_dim": 8} | {field: 0}
    with pytest.raises(ConfigError, match=field):
        Decoder(**extents)


def test_a_clock_that_stands_still_is_refused():
    """Otherwise seconds would be infinite."""
    with pytest.raises(ConfigError, match="clock_hz"):
        Region(100, clock_hz=0)
