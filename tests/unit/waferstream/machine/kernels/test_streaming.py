"""Closed form of a product with streamed weights: parts, limits, and the simulator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from csnode.fabric import kernels
from csnode.fabric.dtypes import Dtype
from csnode.fabric.region import Fabric
from waferstream.machine.hardware import override
from waferstream.machine.hardware.fabric import WSE2, WSE3, FabricSpec
from waferstream.machine.kernels import Grid
from waferstream.machine.kernels.resident import resident_product, weight_gradient
from waferstream.machine.kernels.streaming import service, weight_streaming

SMALL = override(WSE2, columns=4, rows=4)


sizes = st.integers(1, 4000)


def _both(
    spec: FabricSpec,
    grid: tuple[int, int],
    shape: tuple[int, int, int],
    dtype: Dtype,
    density: float = 1.0,
) -> tuple[float, int]:
    """Return the cycles of the closed form and of the fabric, on a grid of (rows, columns).

    ``shape`` is tokens, inputs and outputs.
    """
    rows, columns = grid
    tokens, inputs, outputs = shape
    weights = np.zeros((inputs, outputs))
    weights[:: round(1 / density)] = 1
    fabric = Fabric(rows + 1, columns, spec)
    simulated = kernels.weight_streaming(fabric, np.ones((tokens, inputs)), weights, dtype).cycles
    pes = Grid.whole(spec.model_copy(update={"rows": rows, "columns": columns}))
    return weight_streaming(pes, *shape, dtype.torch_name, density).total_cycles, simulated


def test_weight_streaming_is_the_sum_of_its_parts() -> None:
    """4 x 4 PEs, 32 tokens, 24 -> 3: 8 tokens and 6 features per PE, an output on three of them.

    Each of 3 outputs: six weights of 2 cycles and an issue, a control wavelet, 8 partial sums in 4
    wavelets, a task. Once: set-ups of the first weights and the first ring, a weight's way down the
    column, and the sums' way around: two links to the last keeper and a trip of three.
    """
    cycles = weight_streaming(Grid.whole(SMALL), 32, 24, 3, "float16")
    each, once = 6 * (2 + 1) + 1 + 4 + 1, 2 * 16 + (3 + 5) + (2 + 3) * (2 + 5)
    assert cycles.total_cycles == 3 * each + once
    assert cycles.compute == 3 * 6 * 2


def test_weight_streaming_hides_the_setup_of_a_ring() -> None:
    """16 cycles of set-up exceed the axpys of two features per PE, but not those of six."""
    grid = Grid.whole(SMALL)
    once = weight_streaming(grid, 32, 24, 1, "float16").setup - 6 - 1
    little, enough = (weight_streaming(grid, 32, n, 1, "float16").setup for n in (8, 24))
    assert little - once == 2 + (16 - 2 * (2 + 1) - 1) + 1
    assert enough - once == 6 + 1


def test_weight_streaming_adds_queued_sums_at_full_rate() -> None:
    """On a WSE-3, 16 wavelets take a cycle each; 160 take 1.125, except for those in the queue."""
    grid = Grid.whole(WSE3)
    for words in (16, 160):
        tokens = 2 * words
        one, two = (
            weight_streaming(grid, tokens * grid.token_pes, 762, n, "float16") for n in (1, 2)
        )
        added = two.fabric - one.fabric - WSE3.cycles_per_wavelet - 1 * 9
        assert added == pytest.approx(16 if words == 16 else 1.125 * (160 - WSE3.queue_wavelets))


def test_weight_streaming_costs_the_fullest_pe() -> None:
    """One more token or feature than fits evenly costs as much as a full tile everywhere."""
    grid = Grid.whole(SMALL)
    even = weight_streaming(grid, 32, 24, 3, "float16")
    assert weight_streaming(grid, 29, 21, 3, "float16") == even
    assert weight_streaming(grid, 33, 24, 3, "float16").total_cycles > even.total_cycles
    assert weight_streaming(grid, 32, 25, 3, "float16").total_cycles > even.total_cycles


def test_weight_streaming_skips_zeros() -> None:
    """Multiply-adds shrink with the weights; the ring and waiting PEs do not."""
    grid = Grid.whole(WSE2)
    dense, half, quarter = (
        weight_streaming(grid, 10**6, 6000, 6000, "float16", d) for d in (1, 0.5, 0.25)
    )
    assert dense.compute == pytest.approx(2 * half.compute) == pytest.approx(4 * quarter.compute)
    assert dense.total_cycles / 2 < half.total_cycles < dense.total_cycles
    assert half.total_cycles / 2 < quarter.total_cycles < half.total_cycles


def test_weight_streaming_of_one_token_is_bound_by_weights() -> None:
    """A matrix-vector product with streamed weights takes at least a cycle per weight."""
    cycles = weight_streaming(Grid.whole(WSE2), 1, 6000, 6000, "float16")
    assert cycles.total_cycles > 6000 * 8


def test_weight_streaming_gains_from_replicas_per_row() -> None:
    """768 features over 750 columns leave most PEs half empty; over 256 columns they do not."""
    wide = weight_streaming(Grid.whole(WSE2), 10**6, 768, 768, "float16")
    short = weight_streaming(Grid(WSE2, 256), 10**6, 768, 768, "float16")
    assert short.total_cycles < wide.total_cycles


def test_weight_streaming_on_a_wse_3_uses_its_rates() -> None:
    """Multiply-adds of silicon run at 2.92 per cycle (K0083)."""
    cycles = weight_streaming(Grid.whole(WSE3), 1176 * 292, 762, 1, "float16")
    assert cycles.compute == pytest.approx(292 / 2.92)


@given(tokens=sizes, inputs=sizes, outputs=sizes)
def test_no_product_beats_the_peak(tokens: int, inputs: int, outputs: int) -> None:
    """Every closed form takes at least its multiply-adds divided by the peak rate of all PEs."""
    grid = Grid.whole(WSE2)
    bound = tokens * inputs * outputs / (grid.num_pes * WSE2.fma_16bit_per_cycle)
    for cycles in (
        weight_streaming(grid, tokens, inputs, outputs, "float16"),
        weight_gradient(grid, tokens, inputs, outputs, "float16"),
        resident_product(grid, 1, tokens, inputs, outputs, "float16"),
    ):
        assert cycles.total_cycles >= bound


def test_large_products_reach_most_of_the_peak() -> None:
    """With full tiles, issue and reduction are small compared with the arithmetic."""
    grid = Grid.whole(WSE2)
    tokens, hidden = 994 * 512, 7500
    bound = tokens * hidden * hidden / (grid.num_pes * WSE2.fma_16bit_per_cycle)
    for form in (weight_streaming, weight_gradient):
        assert 1 < form(grid, tokens, hidden, hidden, "float16").total_cycles / bound < 1.35


@pytest.mark.parametrize("spec", [WSE2, WSE3])
@pytest.mark.parametrize(
    ("grid", "shape"),
    [
        ((2, 3), (7, 10, 8)),  # nothing divides
        ((2, 4), (32, 16, 8)),  # many tokens
        ((1, 12), (4, 12, 12)),  # trips of the ring, little else
        ((1, 8), (8, 32, 3)),  # fewer outputs than columns
    ],
)
def test_weight_streaming_matches_the_simulator(
    spec: FabricSpec, grid: tuple[int, int], shape: tuple[int, int, int]
) -> None:
    """Within 5 %, however the product divides among the PEs."""
    form, simulated = _both(spec, grid, shape, Dtype.FP16)
    assert form == pytest.approx(simulated, rel=0.05)


def test_weight_streaming_with_sums_longer_than_a_queue() -> None:
    """On a WSE-3 with 128 words of sums per PE, the slow link counts beyond the queue."""
    form, simulated = _both(WSE3, (1, 3), (256, 3, 4), Dtype.FP16)
    assert form == pytest.approx(simulated, rel=0.03)


def test_weight_streaming_of_uniform_zeros_matches() -> None:
    """A quarter of the weights, evenly spread."""
    form, simulated = _both(WSE2, (2, 3), (16, 24, 6), Dtype.FP16, density=0.25)
    assert form == pytest.approx(simulated, rel=0.05)


@pytest.mark.parametrize("spec", [WSE2, WSE3])
@pytest.mark.parametrize(
    ("dtype", "density"), [(Dtype.FP32, 1.0), (Dtype.FP16, 1.0), (Dtype.FP16, 0.25)]
)
@pytest.mark.parametrize("tokens", [4, 32])
def test_weight_streaming_on_a_ring_of_one_pe_matches(
    spec: FabricSpec, dtype: Dtype, density: float, tokens: int
) -> None:
    """Nothing hides the set-up of the copy, with all weights or a quarter of them."""
    form, simulated = _both(spec, (2, 1), (tokens, 16, 12), dtype, density)
    assert form == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize(("machine", "density"), [(WSE2, 0.1), (WSE2, 0.5), (WSE3, 0.25)])
def test_weight_streaming_of_random_zeros_matches(machine: FabricSpec, density: float) -> None:
    """Within 5 % for one draw; uniform weights or the slowest PE alone would be 10 to 20 % off."""
    rows, columns = 1, 8
    x = np.ones((rows * 8, columns * 16))
    weights = np.random.default_rng(1).random((x.shape[1], 48)) < density
    edge = Fabric(rows + 1, columns, machine)
    taken = kernels.weight_streaming(edge, x, weights.astype(float), Dtype.FP16).cycles
    grid = Grid.whole(machine.model_copy(update={"rows": rows, "columns": columns}))
    form = weight_streaming(grid, *x.shape, 48, "float16", float(weights.mean()))
    assert form.total_cycles == pytest.approx(taken, rel=0.05)


def test_service_agrees_with_random_draws() -> None:
    """Mean, deviation and mean of the longest of 20,000 draws of 16 PEs, within 2 %."""
    drawn = np.random.default_rng(3).binomial(24, 0.3, size=(20_000, 16))
    cycles = np.maximum(16, 1.125 + 3 * drawn)
    found = service(24, 0.3, 3, 1.125, 16, 16)
    assert found.mean == pytest.approx(cycles.mean(), rel=0.02)
    assert found.deviation == pytest.approx(cycles.std(), rel=0.02)
    assert found.longest == pytest.approx(cycles.max(axis=1).mean(), rel=0.02)


@pytest.mark.parametrize("density", [0.0, 1.0])
def test_service_of_all_or_no_weights_does_not_wait(density: float) -> None:
    """Every PE takes as long as every other."""
    found = service(100, density, 3, 1, 16, 750)
    assert found.mean == found.longest == max(16, 1 + 300 * density)
    assert found.waiting_cycles(750, 5000) == 0


@given(
    weights=st.integers(1, 3000),
    density=st.floats(0, 1),
    pes=st.integers(1, 800),
    outputs=st.integers(1, 10_000),
)
def test_service_waits_no_longer_than_the_longest(
    weights: int, density: float, pes: int, outputs: int
) -> None:
    """Waiting is never negative, and at most that for the slowest PE at each output."""
    found = service(weights, density, 2.0, 1.0, 16.0, pes)
    longest = max(0.0, found.longest - found.mean) * outputs
    assert -1e-3 <= found.waiting_cycles(pes, outputs) <= longest * (1 + 1e-6) + 1e-3
