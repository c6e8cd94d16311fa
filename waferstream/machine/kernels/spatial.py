"""Closed forms of kernels over positions: convolution, pooling, resampling, batch norm.

Channels (or patches) lie along a row of PEs, positions of all samples are tokens (``Grid``). An op
over windows reads values of neighbouring positions, most of which lie on other PEs: all of them are
counted as arriving through the ramp of a PE. That is an upper bound: values that are already on the
PE need no transfer.

A convolution is the product of patches and weights (im2col; Chellapilla, Puri and Simard 2006,
"High performance convolutional neural networks for document processing", section 2)::

    output[positions, channels]      =  patches[positions, patch] W[patch, channels]
    patch gradients                  =  output gradients W^T, added where the patches came from
    weight gradients                 =  patches^T output gradients

A transposed convolution is the adjoint: its forward pass is the second product, and its input
gradient the first one (Dumoulin and Visin 2016, arXiv:1603.07285, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence

from waferstream.machine.kernels import tensors
from waferstream.machine.kernels.collectives import all_reduce, stream_cycles
from waferstream.machine.kernels.grid import Cycles, Grid
from waferstream.machine.kernels.resident import resident_product, weight_gradient
from waferstream.machine.kernels.single_pe import vector_cycles, wavelets
from waferstream.machine.kernels.streaming import weight_streaming


def windows(grid: Grid, shape: Sequence[int], dtype: str) -> Cycles:
    """Return the cost of reading all values of windows once: a vector instruction fed by the ramp.

    Args:
        grid: PEs that hold the windows.
        shape: All windows side by side; the values of a window are part of the last dimension.
        dtype: Type of the elements.
    """
    tokens, features = grid.tile(shape)
    elements = tokens * features
    arrival = stream_cycles(grid.fabric, wavelets(grid.fabric, elements, dtype))
    return vector_cycles(grid.fabric, "add", elements, dtype).at_least(arrival)


def convolution(
    grid: Grid,
    positions: int,
    patch: int,
    channels: int,
    dtype: str,
    *,
    op: str,
    density: float = 1.0,
) -> Cycles:
    """Return the cost of a convolution with streamed weights.

    Args:
        grid: PEs that hold patches and channels.
        positions: Positions of the output (of the input if transposed), of all samples.
        patch: Values of a patch: channels of the group times kernel size.
        channels: Channels at a position, of all groups.
        dtype: Type of the elements.
        op: Name of the op, with what it computes (``waferstream.compiler.work``).
        density: Share of the weights that are not zero and arrive.
    """
    patches = windows(grid, (positions, patch), dtype)
    total = Cycles()
    if _multiplies_patches(op):
        total += patches + weight_streaming(grid, positions, patch, channels, dtype, density)
    if _multiplies_channels(op):
        total += patches + weight_streaming(grid, positions, channels, patch, dtype, density)
    return total + _weight_and_bias_gradients(grid, (positions, patch, channels), dtype, op)


def resident_convolution(
    grid: Grid, positions: int, patch: int, channels: int, dtype: str, *, op: str
) -> Cycles:
    """Return the cost of a convolution whose weights are computed on the wafer.

    Arguments are those of ``convolution``.
    """
    patches = windows(grid, (positions, patch), dtype)
    total = Cycles()
    if _multiplies_patches(op):
        total += patches + resident_product(grid, 1, positions, patch, channels, dtype)
    if _multiplies_channels(op):
        total += patches + resident_product(grid, 1, positions, channels, patch, dtype)
    return total + _weight_and_bias_gradients(grid, (positions, patch, channels), dtype, op)


def _multiplies_patches(op: str) -> bool:
    """Return whether an op computes channels from patches."""
    return op in {
        "convolution",
        "convolution_transposed_backward",
        "convolution_transposed_backward_input",
    }


def _multiplies_channels(op: str) -> bool:
    """Return whether an op computes patches from channels."""
    return op in {
        "convolution_transposed",
        "convolution_backward",
        "convolution_backward_input",
    }


def _weight_and_bias_gradients(
    grid: Grid, extents: tuple[int, int, int], dtype: str, op: str
) -> Cycles:
    """Return the cost of both gradients; zero in the forward pass.

    The bias gradient is one pass over the channels, counted whether or not there is a bias; its sum
    over positions joins that of the weight gradients.
    """
    if "backward" not in op:
        return Cycles()
    positions, patch, channels = extents
    bias = tensors.elementwise(grid, (positions, channels), dtype)
    if op.endswith(("_input", "_bias")):
        return bias
    patches = windows(grid, (positions, patch), dtype)
    return bias + patches + weight_gradient(grid, positions, patch, channels, dtype)


def batch_norm(grid: Grid, shape: Sequence[int], dtype: str, *, backward: bool = False) -> Cycles:
    """Return the cost of batch norm or instance norm: as layer norm, with sums over positions.

    Both sums of a channel travel down the columns and over a row's replicas, and back. Backward,
    the same two sums are the gradients of scale and shift.

    Args:
        grid: PEs that hold the tensor.
        shape: Samples, positions, channels.
        dtype: Type of the elements.
        backward: Cost of the backward pass instead of the forward one.
    """
    _, features = grid.tile(shape)
    lines = (grid.fabric.rows, grid.replicas_per_row)
    cycles = [all_reduce(grid.fabric, pes, 2 * features) for pes in lines]
    instructions = 2 * sum(each > 0 for each in cycles)
    sums = Cycles(fabric=sum(cycles), setup=grid.fabric.vector_setup_cycles * instructions)
    passes = tensors.NORM_BACKWARD_PASSES if backward else tensors.NORM_PASSES
    statistics = Cycles() if backward else tensors.norm_statistics(grid.fabric, features)
    return tensors.elementwise(grid, shape, dtype, passes) + sums + statistics
