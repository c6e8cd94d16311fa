"""Cycles of the kernels of the array by closed forms, for the layout that the array has.

The closed forms of ``waferstream.machine.kernels`` predict a machine that lays out every kernel by
itself. The array has one layout for all: its sums are fp32, tiles are padded, heads follow one
another on the largest square of the region, and gradients of weights go up the columns in a chain.
The forms here put the same pieces together for that layout.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import ceil, prod

from csnode.engine.calls import FLASH, KernelCall, calls_of, run_call
from csnode.engine.fabric import FabricArray, Run
from csnode.engine.spec import KernelName
from waferstream.core.program.program import BYTES_PER_ELEMENT
from waferstream.core.program.segment import OpWork
from waferstream.machine.hardware.fabric import WSE2, FabricSpec
from waferstream.machine.kernels import Cycles, Grid, collectives, tensors
from waferstream.machine.kernels.op_costs import op_cycles
from waferstream.machine.kernels.resident import gradient_block, gradient_products, summa
from waferstream.machine.kernels.single_pe import HALF_BYTES, vector_cycles
from waferstream.machine.kernels.streaming import weight_streaming

_SUMS = "float32"
Shape = tuple[int, ...]


def kernel_cycles(grid: Grid, call: KernelCall) -> Cycles:
    """Return the cost of kernels of the array on a region."""
    if call.kernel == "streamed_product":
        return _streamed_product(grid, call) * call.times
    return _FORMS[call.kernel](grid, call.shape, call.dtype) * call.times


@lru_cache(maxsize=1024)
def counted_cycles(rows: int, columns: int, call: KernelCall) -> int:
    """Return the cycles that the simulator of the fabric counts for kernels of the array."""
    runs: list[Run] = []
    run_call(FabricArray(rows, columns, on_run=runs.append), call)
    return sum(run.cycles for run in runs) * call.times


def engine_cycles(grid: Grid, work: OpWork, dtype: str, density: float = 1.0) -> Cycles:
    """Return the cost of an op of the engine: its kernels, and the vector ops between them.

    Args:
        grid: PEs of the region.
        work: The op.
        dtype: Type of the operands of products outside of attention; all others are fp32.
        density: Share of streamed weights that are not zero.
    """
    calls = calls_of(work, dtype, density)
    if not calls:
        return op_cycles(grid, work, dtype, density)
    kernels = sum((kernel_cycles(grid, call) for call in calls), Cycles())
    passes, functions = _BETWEEN.get(work.op, (0, 0))
    shape = work.shape[:-1] if work.kind == "attention" else work.shape
    flat = (prod(shape[:-1]), shape[-1] if shape else 1)
    between = tensors.elementwise(grid, flat, _SUMS, passes)
    return kernels + between + tensors.transcendental(grid, flat, _SUMS) * functions


_BETWEEN = {
    "_softmax_backward_data": (3, 0),  # multiply, subtract, multiply
    "_log_softmax": (2, 1),  # maximum, subtract; exponential and subtract
    "_log_softmax_backward_data": (1, 1),  # subtract; exponential and multiply
    "native_layer_norm_backward": (tensors.NORM_BACKWARD_PASSES - 4, 0),  # the sums are kernels
    "_fused_rms_norm_backward": (tensors.NORM_BACKWARD_PASSES - 4, 0),
    FLASH: (2, 1),  # maximum, subtract; exponential and divide
    f"{FLASH}_backward": (3, 1),  # subtract sums, multiply, scale; exponential and subtract
}
"""Vector ops over all elements between the kernels of an op, and special functions among them."""


def _streamed_product(grid: Grid, call: KernelCall) -> Cycles:
    """Return the cost of a product with streamed weights; tokens of a PE fill whole words.

    Weights of 16 bits bring the index of their feature, so that zeros are left out; fp32 ones fill
    a wavelet, and zeros among them enter as well.
    """
    tokens, inputs, outputs = call.shape
    rows = grid.fabric.rows * _whole_words(grid.tokens(tokens), call.dtype)
    density = call.density if BYTES_PER_ELEMENT[call.dtype] == HALF_BYTES else 1.0
    return weight_streaming(grid, rows, inputs, outputs, call.dtype, density, _SUMS)


def _token_product(grid: Grid, shape: Shape, dtype: str) -> Cycles:
    """Return the cost of a gradient of weights, its sums added by a chain up the columns."""
    inputs, tokens, outputs = shape
    fabric, columns = grid.fabric, grid.hidden_pes
    width = _whole_words(grid.features(outputs), dtype)
    tile = (grid.tokens(tokens), grid.features(inputs), width)
    block = gradient_block(fabric, columns, tile, dtype, must_divide=True)
    products = gradient_products(fabric, columns, tile, block, dtype)
    gradients = tile[1] * width * columns
    chain = collectives.chain(fabric, fabric.rows, gradients)
    return products + _started(fabric, chain)


def _resident_product(grid: Grid, shape: Shape, dtype: str) -> Cycles:
    """Return the cost of one product on the largest square of the region."""
    fabric = grid.fabric
    side = min(fabric.rows, fabric.columns)
    rows, inner, columns = (side * _whole_words(ceil(size / side), dtype) for size in shape)
    return summa(fabric, (side, side), (rows // side, columns // side), inner, dtype)


def _feature_sum(grid: Grid, shape: Shape, _: str) -> Cycles:
    """Return the cost of sums along the rows; stacked operands travel together."""
    tokens, features = shape[-2:]
    sums = prod(shape[:-2]) * grid.tokens(tokens)
    fabric, pes = grid.fabric, grid.hidden_pes
    there, back = (form(fabric, pes, sums) for form in (collectives.reduce, collectives.broadcast))
    local = _local_sums(fabric, sums, grid.features(features))
    return local + _started(fabric, there) + _started(fabric, back)


def _token_sum(grid: Grid, shape: Shape, _: str) -> Cycles:
    tokens, features = shape
    fabric, sums = grid.fabric, grid.features(features)
    local = _local_sums(fabric, sums, grid.tokens(tokens))
    return local + _started(fabric, collectives.reduce(fabric, fabric.rows, sums))


def _softmax(grid: Grid, shape: Shape, _: str) -> Cycles:
    tokens, features = grid.tile(shape)
    alone = _waiting(grid.fabric, tokens, features) * 2  # the maximum and the sum
    return tensors.softmax(grid, shape, _SUMS) + alone


def _layer_norm(grid: Grid, shape: Shape, _: str) -> Cycles:
    tokens, features = grid.tile(shape)
    return tensors.norm(grid, shape, _SUMS) + _waiting(grid.fabric, tokens, features)


def _rms_norm(grid: Grid, shape: Shape, _: str) -> Cycles:
    """Return the cost of an RMS norm: one sum for each token instead of two."""
    fabric = grid.fabric
    tokens = grid.tile(shape)[0]
    passes = tensors.elementwise(grid, shape, _SUMS, tensors.NORM_PASSES - 1)
    statistics = tensors.norm_statistics(fabric, tokens)
    saved = vector_cycles(fabric, "multiply", 2 * tokens, _SUMS).total_cycles
    saved -= vector_cycles(fabric, "multiply", tokens, _SUMS).total_cycles
    there = collectives.reduce(fabric, grid.hidden_pes, tokens)
    back = collectives.broadcast(fabric, grid.hidden_pes, tokens)
    sums = _started(fabric, there) + _started(fabric, back)
    return passes + statistics + Cycles(compute=-saved) + sums


def _local_sums(fabric: FabricSpec, sums: int, terms: int) -> Cycles:
    """Return the cost of the sums that a PE makes, side by side, of so many terms each."""
    if sums == 1:
        return vector_cycles(fabric, "sum", terms, _SUMS)
    return vector_cycles(fabric, "add", sums * terms, _SUMS)


def _waiting(fabric: FabricSpec, sums: int, terms: int) -> Cycles:
    """Return the cycles of a single sum beyond sums side by side: each addition waits.

    Sums of squares do not, since the multiplications come between.
    """
    if sums > 1:
        return Cycles()
    side_by_side = vector_cycles(fabric, "add", terms, _SUMS).total_cycles
    return Cycles(compute=_local_sums(fabric, 1, terms).total_cycles - side_by_side)


def _started(fabric: FabricSpec, cycles: float) -> Cycles:
    """Return the cost of a collective with its set-up; a line of one PE has none."""
    return Cycles(fabric=cycles, setup=fabric.vector_setup_cycles if cycles else 0.0)


def _whole_words(elements: int, dtype: str) -> int:
    """Return a number of elements rounded up to whole 32-bit words."""
    return elements + elements % 2 if BYTES_PER_ELEMENT[dtype] == HALF_BYTES else elements


def region_grid(rows: int, columns: int, fabric: FabricSpec = WSE2) -> Grid:
    """Return a region of a wafer as closed forms take it."""
    return Grid.whole(fabric.model_copy(update={"rows": rows, "columns": columns}))


_FORMS: dict[KernelName, Callable[[Grid, Shape, str], Cycles]] = {
    "token_product": _token_product,
    "resident_product": _resident_product,
    "feature_sum": _feature_sum,
    "token_sum": _token_sum,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}
