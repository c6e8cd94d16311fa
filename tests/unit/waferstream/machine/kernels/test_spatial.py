"""Costs of convolution, pooling and batch norm from those of their parts."""

from __future__ import annotations

import pytest

from waferstream.machine.hardware.fabric import WSE2, WSE3
from waferstream.machine.kernels import Cycles, Grid, spatial
from waferstream.machine.kernels.resident import weight_gradient
from waferstream.machine.kernels.streaming import weight_streaming

EXTENTS = (4096, 288, 64)
GRIDS = [Grid.whole(WSE2), Grid(WSE3, 107)]


def cost(grid: Grid, op: str, extents: tuple[int, int, int] = EXTENTS) -> Cycles:
    return spatial.convolution(grid, *extents, "float16", op=op)


@pytest.mark.parametrize("grid", GRIDS)
def test_convolution_is_patches_and_a_product(grid: Grid) -> None:
    """Patches arrive, then each streamed weight multiplies one value of all patches."""
    positions, patch, channels = EXTENTS
    product = weight_streaming(grid, positions, patch, channels, "float16")
    windows = spatial.windows(grid, (positions, patch), "float16")
    assert cost(grid, "convolution") == windows + product
    assert windows.total_cycles > 0


@pytest.mark.parametrize("grid", GRIDS)
def test_transposed_convolution_is_the_adjoint(grid: Grid) -> None:
    """Forward and input gradient change places, but for the pass over the bias gradient."""
    bias = cost(grid, "convolution_backward_bias").total_cycles
    forward, adjoint = cost(grid, "convolution"), cost(grid, "convolution_transposed")
    of_input = cost(grid, "convolution_backward_input")
    of_transposed = cost(grid, "convolution_transposed_backward_input")
    assert of_input.total_cycles == pytest.approx(adjoint.total_cycles + bias)
    assert of_transposed.total_cycles == pytest.approx(forward.total_cycles + bias)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("op", ["convolution_backward", "convolution_transposed_backward"])
def test_convolution_backward_is_the_sum_of_both_gradients(grid: Grid, op: str) -> None:
    """The pass over the bias gradient counts once."""
    bias = cost(grid, "convolution_backward_bias").total_cycles
    parts = cost(grid, f"{op}_input").total_cycles + cost(grid, f"{op}_weight").total_cycles
    assert cost(grid, op).total_cycles == pytest.approx(parts - bias)
    product = weight_gradient(grid, *EXTENTS, "float16").total_cycles
    assert cost(grid, f"{op}_weight").total_cycles > product


def test_resident_convolution_has_no_stream() -> None:
    """Weights that are computed on the wafer cost a product of two resident operands."""
    grid = GRIDS[0]
    for op in ("convolution", "convolution_transposed", "convolution_backward"):
        resident = spatial.resident_convolution(grid, *EXTENTS, "float16", op=op)
        assert 0 < resident.total_cycles != cost(grid, op).total_cycles


@pytest.mark.parametrize("grid", GRIDS)
def test_windows_cost_at_least_the_ramp(grid: Grid) -> None:
    """Each value passes the ramp of its PE; ten times the values take up to ten times as long."""
    tokens, features = grid.tile((4096, 4096))
    once = spatial.windows(grid, (4096, 4096), "float32").total_cycles
    assert once >= tokens * features * grid.fabric.cycles_per_wavelet - 1
    more = spatial.windows(grid, (40960, 4096), "float32").total_cycles
    assert 1 < more / once <= 10


@pytest.mark.parametrize("grid", GRIDS)
def test_batch_norm_sums_over_positions_in_both_directions(grid: Grid) -> None:
    """The sums cost the same; backward has more passes over the tensor."""
    shape = (8, 64, 1024, 256)
    forward = spatial.batch_norm(grid, shape, "float16")
    backward = spatial.batch_norm(grid, shape, "float16", backward=True)
    assert forward.fabric == backward.fabric > 0
    assert backward.total_cycles > forward.total_cycles
