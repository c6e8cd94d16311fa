"""Closed forms of kernels over resident activations: norm, softmax, attention, loss, elementwise.

The last dimension of a tensor lies along a row, all others are tokens (``Grid``). A PE works on its
tile with vector instructions over all its elements. Sums over features run over the tile's tokens
side by side, so that no addition waits for another, and end in an all-reduce along the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels import collectives
from waferstream.machine.kernels.grid import Cycles, Grid
from waferstream.machine.kernels.resident import MovingOperand, product_in_steps, resident_product
from waferstream.machine.kernels.single_pe import axpy_cycles, vector_cycles, wavelets

# Vector instructions over a tile, and what each does
RANDOM_CYCLES = 65
"""Cycles of a number of Philox 4x32-10 (Salmon et al. 2011): 10 rounds for four numbers, each of
two products of 32 bits (four of 16 bits, and their carries: 10 ops) and six more ops."""
NORM_PASSES = 4  # sum; sum of squares; normalize; scale and shift
NORM_BACKWARD_PASSES = 9  # normalize; dy times scale; 2 sums over features; 3 for dx; 2 over tokens
NORM_STATISTICS = 5  # square of the mean; variance; add epsilon; mean times factor; negate
SOFTMAX_PASSES = 4  # maximum; subtract; sum; divide (the exponential is separate)
SOFTMAX_BACKWARD_PASSES = 4  # y times dy; sum; subtract; multiply


def elementwise(grid: Grid, shape: Sequence[int], dtype: str, passes: int = 1) -> Cycles:
    """Return the cost of ``passes`` vector instructions over a tensor."""
    tokens, features = grid.tile(shape)
    return vector_cycles(grid.fabric, "add", tokens * features, dtype) * passes


def transcendental(grid: Grid, shape: Sequence[int], dtype: str) -> Cycles:
    """Return the cost of a special function (gelu, silu, tanh, ...) and a multiplication."""
    tokens, features = grid.tile(shape)
    return elementwise(grid, shape, dtype) + _unary(grid.fabric, tokens * features)


def random(grid: Grid, shape: Sequence[int], dtype: str) -> Cycles:
    """Return the cost of random numbers, and of comparing or scaling with them.

    A number is drawn by a key and its place, so that it can be drawn again in the backward pass.
    """
    tokens, features = grid.tile(shape)
    draws = Cycles(compute=tokens * features * RANDOM_CYCLES)
    return elementwise(grid, shape, dtype, passes=2) + draws


def copy(grid: Grid, shape: Sequence[int], dtype: str) -> Cycles:
    """Return the cost of a copy inside each PE.

    Transposing heads and tokens moves nothing between PEs: heads are part of the features.
    """
    tokens, features = grid.tile(shape)
    return vector_cycles(grid.fabric, "copy", tokens * features, dtype)


def gather(grid: Grid, shape: Sequence[int], dtype: str) -> Cycles:
    """Return the cost of an embedding lookup or its gradient: a copy of one row per token.

    A PE holds its features of all rows; the result is tokens x features.
    """
    tokens, features = grid.tile(shape)
    moved = vector_cycles(grid.fabric, "copy", features, dtype)
    return moved * tokens


def reduction(grid: Grid, shape: Sequence[int], dtype: str, results: int) -> Cycles:
    """Return the cost of a sum or maximum of a tensor down to ``results`` elements.

    As many results as tokens: over features, along the rows. As many as features: over tokens, down
    the columns. Otherwise over both.
    """
    local = elementwise(grid, shape, dtype)
    hidden = shape[-1] if shape else 1
    if results == prod(shape[:-1]):
        return local + _over_features(grid, grid.tokens(results))
    if results == hidden:
        return local + _over_tokens(grid, grid.features(hidden))
    return local + _over_features(grid, 1) + _over_tokens(grid, 1)


def norm(grid: Grid, shape: Sequence[int], dtype: str, *, backward: bool = False) -> Cycles:
    """Return the cost of layer norm or RMS norm over the features.

    Both sums of a token travel along the row together. Backward, the gradients of scale and shift
    are summed over the tokens as well.
    """
    tokens, features = grid.tile(shape)
    sums = _over_features(grid, 2 * tokens)
    if not backward:
        passes = elementwise(grid, shape, dtype, NORM_PASSES)
        return passes + sums + norm_statistics(grid.fabric, tokens)
    gradients = _over_tokens(grid, 2 * features)
    return elementwise(grid, shape, dtype, NORM_BACKWARD_PASSES) + sums + gradients


def norm_statistics(fabric: FabricSpec, tokens: int) -> Cycles:
    """Return the cost of factor and offset of each token from its sums, in fp32.

    Both means, then variance and root.
    """
    single = vector_cycles(fabric, "multiply", tokens, "float32")
    means = vector_cycles(fabric, "multiply", 2 * tokens, "float32")
    return means + single * NORM_STATISTICS + _unary(fabric, tokens)


def softmax(grid: Grid, shape: Sequence[int], dtype: str, *, backward: bool = False) -> Cycles:
    """Return the cost of a softmax or its logarithm over the features.

    Maximum and sum of a token travel along the row. Forward, each element has an exponential and
    each token a reciprocal or logarithm.
    """
    tokens, features = grid.tile(shape)
    if backward:
        sums = _over_features(grid, tokens)
        return elementwise(grid, shape, dtype, SOFTMAX_BACKWARD_PASSES) + sums
    functions = _unary(grid.fabric, tokens * features) + _unary(grid.fabric, tokens)
    sums = _maximum_and_sum(grid.fabric, grid.hidden_pes, tokens)
    return elementwise(grid, shape, dtype, SOFTMAX_PASSES) + functions + sums


def loss(grid: Grid, shape: Sequence[int], dtype: str) -> Cycles:
    """Return the cost of the negative log-likelihood of tokens x classes.

    One class per token is picked on one PE of a row, so the sum goes along the row first, then down
    the columns.
    """
    picked = gather(grid, (*shape[:-1], 1), dtype)
    local = elementwise(grid, (*shape[:-1], 1), dtype)
    along = _summed(grid.fabric, collectives.reduce(grid.fabric, grid.hidden_pes, 1))
    return picked + local + along + _over_tokens(grid, 1)


def attention(
    grid: Grid,
    heads: int,
    queries: int,
    keys: int,
    head_size: int,
    dtype: str,
    *,
    backward: bool = False,
) -> Cycles:
    """Return the cost of ``softmax(Q K^T) V`` for ``heads``, each on its own rectangle of PEs.

    A PE keeps queries x keys of the scores. Forward: a product over the head size, a softmax along
    the rectangle's rows, and a product over the keys whose partial sums run along the rows.
    Backward recomputes the scores and adds three more products over queries or keys and one over
    the head size (Dao et al. 2022, arXiv:2205.14135, algorithm 4).

    Args:
        grid: PEs that are divided among the heads.
        heads: Batch x heads.
        queries: Queries of a head.
        keys: Keys of a head.
        head_size: Features of a head.
        dtype: Type of the elements.
        backward: Cost of the backward pass instead of the forward one.
    """
    high, wide, rounds = grid.rectangles(heads, queries, keys)
    scores = resident_product(grid, heads, queries, head_size, keys, dtype)
    tile = (-(-queries // high), -(-keys // wide))
    values = _values(grid.fabric, tile, high, wide, head_size, dtype)
    weights = _softmax_on(grid.fabric, tile, wide, dtype, backward=False)
    if not backward:
        return scores + (weights + values) * rounds
    gradient = _softmax_on(grid.fabric, tile, wide, dtype, backward=True)
    return scores * 2 + (weights + gradient + values * 3) * rounds


def _values(
    fabric: FabricSpec, tile: tuple[int, int], high: int, wide: int, head_size: int, dtype: str
) -> Cycles:
    """Return the cost of scores times V: V moves down the columns, partial sums along the rows."""
    queries, keys = tile
    width = ceil(head_size / high)
    product = axpy_cycles(fabric, queries, dtype) * (keys * width)
    moving = MovingOperand(high, wavelets(fabric, keys * width, dtype))
    sums = collectives.reduce(fabric, wide, wavelets(fabric, queries * head_size, dtype))
    products = product_in_steps(fabric, product, ceil(head_size / width), [moving])
    return products + _summed(fabric, sums)


def _softmax_on(
    fabric: FabricSpec, tile: tuple[int, int], wide: int, dtype: str, *, backward: bool
) -> Cycles:
    """Return the cost of a softmax of a tile of scores whose rows are spread over ``wide`` PEs."""
    queries, keys = tile
    vector_pass = vector_cycles(fabric, "add", queries * keys, dtype)
    if backward:
        return vector_pass * SOFTMAX_BACKWARD_PASSES + _all_reduced(fabric, wide, queries)
    functions = _unary(fabric, queries * keys) + _unary(fabric, queries)
    sums = _maximum_and_sum(fabric, wide, queries)
    return vector_pass * SOFTMAX_PASSES + functions + sums


def _unary(fabric: FabricSpec, elements: int) -> Cycles:
    """Return the cost of a special function of each element, one element at a time."""
    return Cycles(compute=elements * fabric.unary_cycles, setup=fabric.vector_setup_cycles)


def _over_features(grid: Grid, values: int) -> Cycles:
    """Return the cost of an all-reduce of fp32 values along the rows."""
    return _all_reduced(grid.fabric, grid.hidden_pes, values)


def _over_tokens(grid: Grid, values: int) -> Cycles:
    """Return the cost of a reduce of fp32 values down the columns and over a row's replicas."""
    down = collectives.reduce(grid.fabric, grid.fabric.rows, values)
    across = collectives.reduce(grid.fabric, grid.replicas_per_row, values)
    return _summed(grid.fabric, down) + _summed(grid.fabric, across)


def _maximum_and_sum(fabric: FabricSpec, pes: int, values: int) -> Cycles:
    """Return the cost of two all-reduces, the second right after the first one's broadcast."""
    return _all_reduced(fabric, pes, values) + _all_reduced(
        fabric, pes, values, after_broadcast=True
    )


def _all_reduced(
    fabric: FabricSpec, pes: int, values: int, *, after_broadcast: bool = False
) -> Cycles:
    """Return the cost of an all-reduce: one instruction reduces, another one broadcasts."""
    cycles = collectives.all_reduce(fabric, pes, values, after_broadcast=after_broadcast)
    return _summed(fabric, cycles, instructions=2)


def _summed(fabric: FabricSpec, cycles: float, instructions: int = 1) -> Cycles:
    """Return the cost of a collective with the set-up that its closed form omits."""
    setup = fabric.vector_setup_cycles * instructions if cycles else 0.0
    return Cycles(fabric=cycles, setup=setup)
