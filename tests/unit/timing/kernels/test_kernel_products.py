"""Matrix products: what a PE does, ceilings of tiles, and published programs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timing.hardware.fabric import WSE2, WSE3, FabricSpec
from timing.kernels import Grid
from timing.kernels.resident import resident_product, weight_gradient
from timing.kernels.streaming import weight_streaming
from validation.published_programs.products import (
    descriptor_gemm,
    single_pe_gemv,
    star_stencil,
    summa,
    summa_multiply_add,
)
from wsc.core.errors import ConfigError

SMALL = FabricSpec(columns=4, rows=4)
sizes = st.integers(1, 4000)


def test_a_streamed_product_adds_up_from_its_parts() -> None:
    """4 x 4 PEs, 32 tokens, 24 -> 3: 8 tokens and 6 features per PE, an output on three of them.

    Each of 3 outputs: six weights of 2 cycles and an issue, a control wavelet, 8 partial sums in 4
    wavelets, a task. Once: set-ups of the first weights and the first ring, a weight's way down,
    and sums' ways around, two links to the last keeper and a trip of three.
    """
    cycles = weight_streaming(Grid.whole(SMALL), 32, 24, 3, "float16")
    each, once = 6 * (2 + 1) + 1 + 4 + 1, 2 * 16 + (3 + 5) + (2 + 3) * (2 + 5)
    assert cycles.total_cycles == 3 * each + once
    assert cycles.compute == 3 * 6 * 2


def test_the_set_up_of_a_ring_is_hidden_where_axpys_take_longer() -> None:
    """Four PEs' features give 16 cycles of set-up too little to do; six give enough."""
    grid = Grid.whole(SMALL)
    once = weight_streaming(grid, 32, 24, 1, "float16").setup - 6 - 1
    little, enough = (weight_streaming(grid, 32, n, 1, "float16").setup for n in (8, 24))
    assert little - once == 2 + (16 - 2 * (2 + 1) - 1) + 1
    assert enough - once == 6 + 1


def test_sums_that_wait_in_a_queue_are_added_faster_than_the_link_brings_them() -> None:
    """On a WSE-3, 16 wavelets at one a cycle, 160 at 1.125 but for those that the queue holds."""
    grid = Grid.whole(WSE3)
    for words in (16, 160):
        tokens = 2 * words
        one, two = (
            weight_streaming(grid, tokens * grid.token_pes, 762, n, "float16") for n in (1, 2)
        )
        added = two.fabric - one.fabric - WSE3.cycles_per_wavelet - 1 * 9
        assert added == pytest.approx(16 if words == 16 else 1.125 * (160 - WSE3.queue_wavelets))


def test_an_uneven_tile_costs_as_much_as_the_fullest_pe() -> None:
    """One token or feature more than the grid holds evenly fills a whole new one everywhere."""
    grid = Grid.whole(SMALL)
    even = weight_streaming(grid, 32, 24, 3, "float16")
    assert weight_streaming(grid, 29, 21, 3, "float16") == even
    assert weight_streaming(grid, 33, 24, 3, "float16").total_cycles > even.total_cycles
    assert weight_streaming(grid, 32, 25, 3, "float16").total_cycles > even.total_cycles


def test_zeros_that_do_not_arrive_cost_nothing() -> None:
    """Multiply-adds shrink with the weights; the ring does not, nor do PEs that wait for others."""
    grid = Grid.whole(WSE2)
    dense, half, quarter = (
        weight_streaming(grid, 10**6, 6000, 6000, "float16", d) for d in (1, 0.5, 0.25)
    )
    assert dense.compute == pytest.approx(2 * half.compute) == pytest.approx(4 * quarter.compute)
    assert dense.total_cycles / 2 < half.total_cycles < dense.total_cycles
    assert half.total_cycles / 2 < quarter.total_cycles < half.total_cycles


def test_with_one_token_the_stream_or_the_issue_of_weights_decides() -> None:
    """A matrix-vector product with streamed weights takes at least a cycle for each weight."""
    cycles = weight_streaming(Grid.whole(WSE2), 1, 6000, 6000, "float16")
    assert cycles.total_cycles > 6000 * 8


def test_stretches_help_a_hidden_dimension_that_does_not_fill_a_row() -> None:
    """768 features over 750 columns leave most PEs half empty; over 384, with two replicas_per_row, not."""
    wide = weight_streaming(Grid.whole(WSE2), 10**6, 768, 768, "float16")
    short = weight_streaming(Grid(WSE2, 256), 10**6, 768, 768, "float16")
    assert short.total_cycles < wide.total_cycles


@given(tokens=sizes, inputs=sizes, outputs=sizes)
def test_no_product_beats_the_peak(tokens: int, inputs: int, outputs: int) -> None:
    """Every form takes at least its multiply-adds over those of all PEs in a cycle."""
    grid = Grid.whole(WSE2)
    bound = tokens * inputs * outputs / (grid.num_pes * WSE2.fma_16bit_per_cycle)
    for cycles in (
        weight_streaming(grid, tokens, inputs, outputs, "float16"),
        weight_gradient(grid, tokens, inputs, outputs, "float16"),
        resident_product(grid, 1, tokens, inputs, outputs, "float16"),
    ):
        assert cycles.total_cycles >= bound


def test_large_products_reach_most_of_the_peak() -> None:
    """Where tiles are full, issue and reduction are small beside the arithmetic."""
    grid = Grid.whole(WSE2)
    tokens, hidden = 994 * 512, 7500
    bound = tokens * hidden * hidden / (grid.num_pes * WSE2.fma_16bit_per_cycle)
    for form in (weight_streaming, weight_gradient):
        assert 1 < form(grid, tokens, hidden, hidden, "float16").total_cycles / bound < 1.35


def test_more_products_than_pes_take_turns() -> None:
    """32 products on 16 PEs take two rounds, each with its set-up, plus the same way once."""
    grid = Grid.whole(SMALL)
    one, two = (resident_product(grid, n, 8, 8, 8, "float32") for n in (16, 32))
    assert two.total_cycles - one.total_cycles == 16 + 8 * 8 * (8 + 1)


def test_a_grid_that_is_too_narrow_is_refused() -> None:
    """The hidden dimension cannot be spread over more columns than there are."""
    with pytest.raises(ConfigError, match="does not fit the grid"):
        Grid(SMALL, 5)
    with pytest.raises(ConfigError, match="does not fit the grid"):
        Grid(SMALL, 0)


@given(parts=st.integers(1, 3000), rows=sizes, columns=sizes)
def test_rectangles_fit_the_grid_and_hold_all_parts(parts: int, rows: int, columns: int) -> None:
    """All parts of a round fit side by side, sides are no longer than the work, none is lost."""
    grid = Grid(FabricSpec(columns=20, rows=30), 20)
    high, wide, rounds = grid.rectangles(parts, rows, columns)
    assert 1 <= high <= rows
    assert 1 <= wide <= columns
    assert min(parts, grid.num_pes) * high * wide <= grid.num_pes
    assert rounds * grid.num_pes >= parts


@pytest.mark.parametrize(
    ("rows", "columns", "sides"),
    [(100, 100, (10, 10)), (400, 100, (20, 5)), (300, 100, (20, 5)), (100, 400, (5, 20))],
)
def test_rectangles_are_shaped_like_the_work(
    rows: int, columns: int, sides: tuple[int, int]
) -> None:
    """Of a hundred PEs, so that a PE's tile is a square."""
    grid = Grid(FabricSpec(columns=20, rows=30), 20)
    assert grid.rectangles(6, rows, columns) == (*sides, 1)


@pytest.mark.parametrize(("rows", "cycles"), [(20, 458.8), (60, 3701.8), (100, 10144.8)])
def test_a_matrix_vector_product_on_one_pe_takes_what_was_measured(
    rows: int, cycles: float
) -> None:
    """K0123, K0127 and K0131."""
    assert single_pe_gemv(WSE2, rows, rows, "float32").total_cycles == pytest.approx(cycles, 1e-4)


def test_columns_are_padded_to_whole_lines() -> None:
    """30 fp32 rows take as long as 32 (K0124), 30 fp16 rows as long as 32."""
    assert single_pe_gemv(WSE2, 30, 30, "float32") == single_pe_gemv(WSE2, 32, 30, "float32")
    assert single_pe_gemv(WSE2, 25, 30, "float16") == single_pe_gemv(WSE2, 32, 30, "float16")
    assert single_pe_gemv(WSE2, 25, 30, "float16").compute == 30 * 32 / 4


def test_a_loop_of_strided_multiply_adds_takes_what_was_measured() -> None:
    """K0138 and K0141: 48 x 64 calls of 64 elements, 8 x 64 calls of 128."""
    assert descriptor_gemm(WSE2, (16, 12), 64, 768, 768).total_cycles == pytest.approx(477507, 1e-3)
    assert descriptor_gemm(WSE2, (128, 8), 64, 1024, 1024).total_cycles == pytest.approx(
        150996, 1e-3
    )


def test_summa_is_its_steps() -> None:
    """K0133 and K0134: 58 cycles per multiply-add of 14, 120 per step; broadcasts are hidden."""
    assert summa_multiply_add(WSE2, 14, "float32").total_cycles == 58
    assert summa(WSE2, 4, (14, 14, 14), "float32").total_cycles == 4 * (14 * 14 * 58 + 120)


def test_summa_waits_for_broadcasts_that_take_longer_than_the_products() -> None:
    """Four axpys of 400 fp16 elements, 144 cycles each, and 800 words at 0.975 a cycle."""
    cycles = summa(WSE2, 4, (400, 4, 1), "float16")
    assert cycles.total_cycles == pytest.approx(4 * (800 / 0.975 + 120))
    assert cycles.compute == 4 * 4 * 400 / 4


def test_a_stencil_is_as_fast_as_its_multiply_adds() -> None:
    """43 instructions at twice the rate take half as long; all 60 have their set-up."""
    fast = WSE2.model_copy(update={"fma_32bit_per_cycle": 2.0})
    assert star_stencil(fast, 1000).compute == 43 * 1000 / 2
    assert star_stencil(fast, 1000).setup == 60 * 16


def test_the_stencil_is_near_what_was_measured() -> None:
    """K0060: 75 us per step of 1000 cells at 850 MHz; nothing was fitted to it."""
    assert star_stencil(WSE2, 1000).total_cycles / 850 == pytest.approx(75, rel=0.07)


def test_a_wse_3_does_a_streamed_product_at_its_own_rates() -> None:
    """The multiply-adds of silicon run at 2.92 per cycle (K0083)."""
    cycles = weight_streaming(Grid.whole(WSE3), 1176 * 292, 762, 1, "float16")
    assert cycles.compute == pytest.approx(292 / 2.92)
