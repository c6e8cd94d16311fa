"""Seconds of prefill, decode and whole requests on a region of a wafer.

Prefill runs nine matrix products per layer. On few PEs their inner loops bound the time; on many
PEs the steps do, of which each product takes as many as the region has PEs in a row, so prefill
gains less and less from more PEs. Decode runs one token at a time: matrix-vector products and
all-reduces, bound by latency. Orders and counts of operations are those of WaferLLM's published
prefill and decode programs; the transfer of activations between regions, below 0.5 % of a token,
is left out.
"""

from __future__ import annotations

from collections import Counter

from waferstream.core.arguments import check_least
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.mesh import (
    Cycles,
    alignment_cycles,
    all_reduce_cycles,
    link_cycles,
    matmul_cycles,
    matvec_cycles,
    mesh_matvec_cycles,
)
from waferstream.machine.regions.region import PE_COSTS, PeCosts, Region

REDUCE_OPS = 2
"""Vector instructions of a step that add its scores to the neighbour's and clear them."""

FUNCTIONS_PER_TOKEN = 7
"""Divisions and square roots per token: two divisions and a root for each norm, one in softmax."""

VECTOR_OPS = 37
"""Vector instructions of a layer on a tile of ``dim``: two norms of 4, rotary embedding 12, softmax
and its scale 5, residuals 2, gate 1, and 9 that clear the results of products."""

FUNCTIONS_PER_LAYER = 7
"""Divisions and square roots of a layer, independent of its shape: two divisions and a root for
each norm, one division for the softmax."""

SCALAR_REDUCES = 4
"""All-reduces of one number in a layer: one for each norm, maximum and sum of the softmax."""


def prefill_s(model: Decoder, region: Region, tokens: int, costs: PeCosts = PE_COSTS) -> float:
    """Return the seconds of a prompt of ``tokens``; ConfigError unless they are positive."""
    check_least("a request", tokens=tokens)
    layer = prefill_cycles_per_layer(model, region, tokens, costs=costs)
    return region.seconds(model.layers * layer.total)


def prefill_cycles_per_layer(
    model: Decoder, region: Region, tokens: int, before: int = 0, costs: PeCosts = PE_COSTS
) -> Cycles:
    """Return the cycles of one layer for ``tokens`` of a prompt, which follow ``before`` others.

    The experts of a layer compute side by side, each on a share of the region, so that they take
    what one product of the width that a token passes does.
    """
    products = _matmuls(model, region, tokens, before, costs)
    functions = _prefill_functions(model, region, tokens, before, costs)
    return Cycles(
        compute=sum(product.compute for product in products) + functions,
        fabric=sum(product.fabric for product in products)
        + _alignments(model, region, tokens, before, costs)
        + _score_reduces(region, tokens, before),
    )


def _matmuls(
    model: Decoder, region: Region, tokens: int, before: int, costs: PeCosts
) -> list[Cycles]:
    """Return the cycles of the products of a layer, nine with a gate."""
    # Each triple (m, k, n) is a product m x k times k x n.
    tile = region.tile
    m, dim, q, kv = tile(tokens), tile(model.dim), tile(model.queries), tile(model.kv_dim)
    ffn, context = tile(model.active_ffn), tile(before + tokens)
    projections = (m, dim, q), (m, dim, kv), (m, dim, kv)
    attention = (m, q, context), (m, context, q), (m, q, dim)
    feed_forward = *((model.products - 1) * [(m, dim, ffn)]), (m, ffn, dim)
    shapes = (*projections, *attention, *feed_forward)
    return [matmul_cycles(m, k, n, region, costs) for m, k, n in shapes]


def _alignments(model: Decoder, region: Region, tokens: int, before: int, costs: PeCosts) -> float:
    """Return the cycles to align left tiles where a product does not find them aligned."""
    # Before queries, weighted values, output, up and down.
    widths = model.dim, before + tokens, model.queries, model.dim, model.active_ffn
    m = region.tile(tokens)
    return sum(alignment_cycles(m * region.tile(width), region, costs) for width in widths)


def _score_reduces(region: Region, tokens: int, before: int) -> float:
    """Return the cycles to add tiles of scores along the row, one per step of the key product.

    Rows work as a pipeline, so a step costs its tile, not the distance (He et al., section 5.4).
    """
    scores = region.tile(tokens) * region.tile(before + tokens)
    setup = REDUCE_OPS * region.fabric.vector_setup_cycles
    return region.side * (setup + link_cycles(scores, region.fabric))


def _prefill_functions(
    model: Decoder, region: Region, tokens: int, before: int, costs: PeCosts
) -> float:
    """Return the cycles of exponentials and divisions per score, per gate and per token."""
    m, ffn = region.tile(tokens), region.tile(model.active_ffn)
    scores = m * region.tile(before + tokens)
    return (scores + 2 * m * ffn + FUNCTIONS_PER_TOKEN * m) * costs.function_cycles


def decode_s_per_token(
    model: Decoder, region: Region, context: int, costs: PeCosts = PE_COSTS
) -> float:
    """Return the seconds of one token that attends to ``context`` tokens, at least one."""
    check_least("a request", context=context)
    layer = decode_cycles_per_layer(model, region, context, costs)
    return region.seconds(model.layers * layer.total)


def decode_cycles_per_layer(
    model: Decoder, region: Region, context: int, costs: PeCosts = PE_COSTS
) -> Cycles:
    """Return the cycles of one layer for one token that attends to ``context`` tokens.

    The experts of the token compute one after the other, each spread over the region, as a
    product of their widths together.
    """
    return Cycles(
        compute=_matvecs(model, region, context, costs)
        + _elementwise(model, region, context, costs),
        fabric=_all_reduces(model, region, context, costs),
    )


def _all_reduces(model: Decoder, region: Region, context: int, costs: PeCosts) -> float:
    """Return the cycles of the all-reduces of a layer."""
    dim, q, kv, ffn, scores = _decode_tiles(model, region, context)
    router = [model.experts] if model.experts > 1 else []  # every PE selects, so it needs them all
    vectors = q + 2 * kv, scores, q, dim, (model.products - 1) * ffn, dim
    scalars = [1] * SCALAR_REDUCES
    return sum(all_reduce_cycles(n, region, costs) for n in (*vectors, *router, *scalars))


def _matvecs(model: Decoder, region: Region, context: int, costs: PeCosts) -> float:
    """Return the cycles of the matrix-vector products of a layer."""
    dim, q, kv, ffn, scores = _decode_tiles(model, region, context)
    projections = (dim, q), (dim, kv), (dim, kv)
    attention = (q, scores), (scores, q), (q, dim)
    feed_forward = *((model.products - 1) * [(dim, ffn)]), (ffn, dim)
    router = [(dim, region.tile(model.experts))] if model.experts > 1 else []
    shapes = (*projections, *attention, *router, *feed_forward)
    return sum(matvec_cycles(rows, columns, costs) for rows, columns in shapes)


def _elementwise(model: Decoder, region: Region, context: int, costs: PeCosts) -> float:
    """Return the cycles of norms, rotary embedding, softmax, gate and residuals on one PE.

    Every vector instruction loads its descriptors first. The exponential is a short polynomial in
    a loop; the gate is a loop with a division, over a tile of ``dim`` in the published program.
    """
    dim, _, _, _, scores = _decode_tiles(model, region, context)
    fabric = region.fabric
    setup = fabric.vector_setup_cycles + fabric.descriptor_load_cycles
    vector_op = setup + dim / fabric.fma_16bit_per_cycle
    select = setup + model.experts / fabric.fma_16bit_per_cycle  # the best expert that is left
    return (
        VECTOR_OPS * vector_op
        + (FUNCTIONS_PER_LAYER + dim) * costs.function_cycles
        + (scores + dim) * costs.loop_cycles
        + (model.experts_per_token * select if model.experts > 1 else 0.0)
    )


def _decode_tiles(model: Decoder, region: Region, context: int) -> tuple[int, int, int, int, int]:
    """Return the elements per PE: widths of model, queries, keys and feed-forward, and context."""
    tile = region.tile
    widths = tile(model.dim), tile(model.queries), tile(model.kv_dim), tile(model.active_ffn)
    return *widths, tile(context)


def head_cycles(
    model: Decoder, region: Region, num_regions: int, costs: PeCosts = PE_COSTS
) -> Cycles:
    """Return the cycles of the scores of a vocabulary, of which each region has a share."""
    share = -(-model.vocabulary // num_regions)
    scores = mesh_matvec_cycles(model.dim, share, region, costs)
    best = all_reduce_cycles(1, region, costs)  # the index of the largest one
    return Cycles(scores.compute, scores.fabric + best)


def end_to_end_s(
    model: Decoder,
    prefill: Region,
    decode: Region,
    prompt: int,
    output: int,
    costs: PeCosts = PE_COSTS,
) -> float:
    """Return the seconds from a prompt of ``prompt`` tokens to the last of ``output`` tokens.

    Args:
        model: The decoder.
        prefill: Region that runs the prompt.
        decode: Region that decodes tokens.
        prompt: Tokens of the prompt, at least one.
        output: New tokens, at least one.
        costs: Instruction costs of a PE.
    """
    return (
        prefill_s(model, prefill, prompt, costs)
        + relayout_s(model, prefill, prompt)
        + decode_s(model, decode, prompt, output, costs)
    )


def decode_s(
    model: Decoder, region: Region, prompt: int, output: int, costs: PeCosts = PE_COSTS
) -> float:
    """Return the seconds of ``output`` tokens after ``prompt`` others, each at its own context."""
    check_least("a request", prompt=prompt, output=output)
    cache_tiles = Counter(region.tile(prompt + new) for new in range(1, output + 1))
    return sum(
        count * decode_s_per_token(model, region, tile * region.side, costs)
        for tile, count in cache_tiles.items()
    )


def relayout_s(model: Decoder, region: Region, tokens: int) -> float:
    """Return the seconds to move weights and KV cache from the prefill to the decode region.

    Both are moved over the network (He et al., section 4.4). Half of the bytes cross the middle of
    the prefill region, whose links, one for each row, bound the move: this is a lower bound.
    """
    check_least("a request", tokens=tokens)
    fabric = region.fabric
    crossing_bytes = (model.weight_bytes + model.cache_bytes(tokens)) / 2
    wavelets_per_link = crossing_bytes / (fabric.wavelet_bytes * region.side)
    return region.seconds(wavelets_per_link * fabric.cycles_per_wavelet)
