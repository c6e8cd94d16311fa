"""Closed form of the gradient of a sparse weight: parts, limits, and the simulator."""

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
from waferstream.machine.kernels.masked import masked_weight_gradient, sparse_weight_gradient
from waferstream.machine.kernels.resident import weight_gradient

SMALL = override(WSE2, columns=4, rows=4)


def test_masked_gradient_on_one_column_is_the_sum_of_its_parts() -> None:
    """4 rows of one PE, 32 tokens, 6 x 4 weights, half of them: 8 tokens per PE, one step.

    Twelve dot products of 2 cycles and an issue, a control wavelet and a task for each input, a
    signal; twelve sums up the column, with a set-up.
    """
    cycles = masked_weight_gradient(Grid(override(SMALL, columns=1), 1), 32, 6, 4, "float16", 0.5)
    assert cycles.compute == 12 * 2
    assert cycles.setup == 12 + 4 * 2 + 1 + 16
    assert cycles.fabric == 12 + 3 * (1 + 5)


@pytest.mark.parametrize(
    ("sizes", "least", "most"), [((256, 16, 400), 1.0, 1.15), ((4000, 4000, 4), 1.9, 2.0)]
)
def test_masked_gradient_costs_parts_or_products(
    sizes: tuple[int, int, int], least: float, most: float
) -> None:
    """Twice the weights: little more for long parts of x, twice the time for many outputs."""
    few, more = (
        masked_weight_gradient(Grid.whole(SMALL), *sizes, "float16", density).total_cycles
        for density in (0.1, 0.2)
    )
    assert least < more / few < most


def test_dense_kernel_is_taken_where_it_is_faster() -> None:
    """With nearly all weights, and with weights of 32 bits, which carry no index."""
    grid, sizes = Grid.whole(WSE2), (50_000, 4096, 4096)
    dense = weight_gradient(grid, *sizes, "float16")
    assert sparse_weight_gradient(grid, *sizes, "float16", 1.0) == dense
    assert sparse_weight_gradient(grid, *sizes, "float16", 0.25).total_cycles < dense.total_cycles
    assert sparse_weight_gradient(grid, *sizes, "float32", 0.25) == weight_gradient(
        grid, *sizes, "float32"
    )


@given(
    tokens=st.integers(1, 4000),
    outputs=st.integers(1, 4000),
    inputs=st.integers(1, 4000),
    density=st.floats(0, 1),
)
def test_no_masked_gradient_beats_the_peak(
    tokens: int, outputs: int, inputs: int, density: float
) -> None:
    """Every cost is at least the kept multiply-adds by the peak rate, and no cause is negative."""
    grid = Grid(WSE2, 250)
    cycles = masked_weight_gradient(grid, tokens, outputs, inputs, "float16", density)
    kept = tokens * outputs * inputs * density
    assert cycles.total_cycles >= kept / (grid.num_pes * WSE2.fma_16bit_per_cycle)
    assert min(cycles.compute, cycles.fabric, cycles.setup) >= 0


@pytest.mark.parametrize(
    ("machine", "columns", "tile", "density"),
    [
        (WSE2, 4, (16, 12, 8), 0.1),  # bound by the parts of x
        (WSE2, 4, (16, 12, 8), 0.25),
        (WSE2, 4, (16, 12, 8), 0.5),  # bound by products
        (WSE3, 8, (32, 8, 6), 0.25),
    ],
)
def test_masked_gradient_matches_the_simulator(
    machine: FabricSpec, columns: int, tile: tuple[int, int, int], density: float
) -> None:
    """Within 5 % for one draw, as products with streamed weights; draws of few weights vary."""
    (tokens, features, width), rows = tile, 2
    x, dy = np.ones((rows * tokens, columns * width)), np.ones((rows * tokens, columns * features))
    mask = np.random.default_rng(1).random((dy.shape[1], x.shape[1])) < density
    taken = kernels.masked_weight_gradient(
        Fabric(rows + 1, columns, machine), dy, x, mask, Dtype.FP16
    ).cycles
    grid = Grid.whole(override(machine, columns=columns, rows=rows))
    form = masked_weight_gradient(grid, *dy.shape, x.shape[1], "float16", float(mask.mean()))
    assert form.total_cycles == pytest.approx(taken, rel=0.05)
