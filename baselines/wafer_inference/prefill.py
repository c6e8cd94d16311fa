"""The prompt through the layers: nine matrix products each, and little beside.

On few PEs the time is that of the inner loops, on many that of the steps, of which each product
takes as many as the region has PEs in a row: that is why prefill gains less and less from PEs. The
order of operations is that of WaferLLM's published prefill program.
"""

from __future__ import annotations

from baselines.wafer_inference.costs import PE_COSTS, PeCosts
from baselines.wafer_inference.mesh import alignment_cycles, link_cycles, matmul_cycles
from baselines.wafer_inference.shapes import Decoder, Region
from timing.least import check_least

REDUCE_OPS = 2
"""Vector instructions that add the scores of one step to those of the neighbour, and clear them."""

FUNCTIONS_PER_TOKEN = 7
"""Divisions and roots per token: two divisions and a root for each norm, one for the softmax."""


def prefill_s(model: Decoder, region: Region, tokens: int, costs: PeCosts = PE_COSTS) -> float:
    """Seconds of a prompt of ``tokens``; ConfigError if that is not a positive number."""
    check_least("a request", tokens=tokens)
    return region.seconds(model.layers * prefill_cycles_per_layer(model, region, tokens, costs))


def prefill_cycles_per_layer(
    model: Decoder, region: Region, tokens: int, costs: PeCosts = PE_COSTS
) -> float:
    """Cycles of one layer for a prompt of ``tokens``."""
    return (
        _products(model, region, tokens, costs)
        + _alignments(model, region, tokens, costs)
        + _score_reduces(region, tokens)
        + _functions(model, region, tokens, costs)
    )


def _products(model: Decoder, region: Region, tokens: int, costs: PeCosts) -> float:
    """Queries, keys, values, scores, weighted values, output, up, gate, down: m x k times k x n."""
    m, dim, kv, ffn = _tiles(model, region, tokens)
    projections = (m, dim, dim), (m, dim, kv), (m, dim, kv)
    attention = (m, dim, m), (m, m, dim), (m, dim, dim)
    feed_forward = (m, dim, ffn), (m, dim, ffn), (m, ffn, dim)
    shapes = (*projections, *attention, *feed_forward)
    return sum(matmul_cycles(m, k, n, region, costs) for m, k, n in shapes)


def _alignments(model: Decoder, region: Region, tokens: int, costs: PeCosts) -> float:
    """Left tiles before queries, weighted values, output, up and down; others lie there already."""
    m, dim, _, ffn = _tiles(model, region, tokens)
    return sum(alignment_cycles(m * width, region, costs) for width in (dim, m, dim, dim, ffn))


def _score_reduces(region: Region, tokens: int) -> float:
    """The product with the transposed keys adds a tile of scores along the row in every step.

    Rows work as a pipeline, so a step costs its tile, not the way (He et al., section 5.4).
    """
    m = region.tile(tokens)
    setup = REDUCE_OPS * region.fabric.vector_setup_cycles
    return region.side * (setup + link_cycles(m * m, region.fabric))


def _functions(model: Decoder, region: Region, tokens: int, costs: PeCosts) -> float:
    """An exponential per score, an exponential and a division per gate, and those per token."""
    m, _, _, ffn = _tiles(model, region, tokens)
    return (m * m + 2 * m * ffn + FUNCTIONS_PER_TOKEN * m) * costs.function_cycles


def _tiles(model: Decoder, region: Region, tokens: int) -> tuple[int, int, int, int]:
    """Elements per PE: tokens, width, width of keys and values, feed-forward width."""
    tile = region.tile
    return tile(tokens), tile(model.dim), tile(model.kv_dim), tile(model.ffn)
