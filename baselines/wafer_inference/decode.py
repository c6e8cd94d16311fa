"""One token through the layers: matrix-vector products and all-reduces, bound by latency.

The order of operations, and how often each occurs, is that of WaferLLM's published decode program.
Left out, below 0.5 % of a token: the way of the activations from one region to the next.
"""

from __future__ import annotations

from baselines.wafer_inference.costs import PE_COSTS, PeCosts
from baselines.wafer_inference.mesh import all_reduce_cycles, matvec_cycles
from baselines.wafer_inference.shapes import Decoder, Region
from timing.least import check_least

VECTOR_OPS = 37
"""Vector instructions of a layer on a tile of ``dim``: two norms of 4, rotary embedding 12, softmax
and its scale 5, residuals 2, gate 1, and 9 that clear the results of products."""

FUNCTIONS = 7
"""Divisions and square roots of a layer whose number does not depend on its shape: two divisions
and a root for each norm, one division for the softmax."""

SCALAR_REDUCES = 4
"""All-reduces of one number in a layer: one for each norm, maximum and sum of the softmax."""


def decode_s_per_token(
    model: Decoder, region: Region, context: int, costs: PeCosts = PE_COSTS
) -> float:
    """Seconds of one token that attends to ``context`` tokens.

    Raises ConfigError if ``context`` is not positive.
    """
    check_least("a request", context=context)
    return region.seconds(model.layers * decode_cycles_per_layer(model, region, context, costs))


def decode_cycles_per_layer(
    model: Decoder, region: Region, context: int, costs: PeCosts = PE_COSTS
) -> float:
    """Cycles of one layer for one token that attends to ``context`` tokens."""
    return (
        _reduces(model, region, context, costs)
        + _products(model, region, context, costs)
        + _elementwise(model, region, context, costs)
    )


def _reduces(model: Decoder, region: Region, context: int, costs: PeCosts) -> float:
    dim, kv, ffn, scores = _tiles(model, region, context)
    vectors = (dim + 2 * kv, scores, dim, dim, 2 * ffn, dim, *[1] * SCALAR_REDUCES)
    return sum(all_reduce_cycles(vector, region, costs) for vector in vectors)


def _products(model: Decoder, region: Region, context: int, costs: PeCosts) -> float:
    dim, kv, ffn, scores = _tiles(model, region, context)
    queries, keys, values = (dim, dim), (dim, kv), (dim, kv)
    attention = (dim, scores), (scores, dim)
    output, up, gate, down = (dim, dim), (dim, ffn), (dim, ffn), (ffn, dim)
    shapes = (queries, keys, values, *attention, output, up, gate, down)
    return sum(matvec_cycles(rows, columns, costs) for rows, columns in shapes)


def _elementwise(model: Decoder, region: Region, context: int, costs: PeCosts) -> float:
    """Norms, rotary embedding, softmax, gate and residuals on the tile of one PE.

    Every vector instruction loads its descriptors first. The exponential is a short polynomial in
    a loop; the gate is a loop with a division in it, over a tile of ``dim`` in the published
    program.
    """
    dim, _, _, scores = _tiles(model, region, context)
    fabric = region.fabric
    setup = fabric.vector_setup_cycles + fabric.descriptor_load_cycles
    vector_op = setup + dim / fabric.fma_16bit_per_cycle
    return (
        VECTOR_OPS * vector_op
        + (FUNCTIONS + dim) * costs.function_cycles
        + (scores + dim) * costs.loop_cycles
    )


def _tiles(model: Decoder, region: Region, context: int) -> tuple[int, int, int, int]:
    """Elements per PE: width, width of keys and values, feed-forward width, context."""
    tile = region.tile
    return tile(model.dim), tile(model.kv_dim), tile(model.ffn), tile(context)
