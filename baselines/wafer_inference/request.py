"""A whole request: prefill, the move to the regions of decode, and one token after the other."""

from __future__ import annotations

from collections import Counter

from baselines.wafer_inference.costs import PE_COSTS, PeCosts
from baselines.wafer_inference.decode import decode_s_per_token
from baselines.wafer_inference.prefill import prefill_s
from baselines.wafer_inference.shapes import Decoder, Region
from timing.least import check_least


def end_to_end_s(
    model: Decoder,
    prefill: Region,
    decode: Region,
    prompt: int,
    output: int,
    costs: PeCosts = PE_COSTS,
) -> float:
    """Seconds from a prompt of ``prompt`` tokens to the last of ``output`` tokens.

    Raises ConfigError if one of them is not positive.
    """
    return (
        prefill_s(model, prefill, prompt, costs)
        + relayout_s(model, prefill, prompt)
        + decode_s(model, decode, prompt, output, costs)
    )


def decode_s(
    model: Decoder, region: Region, prompt: int, output: int, costs: PeCosts = PE_COSTS
) -> float:
    """Seconds of ``output`` tokens after ``prompt`` others, each one attending to all before it."""
    check_least("a request", prompt=prompt, output=output)
    cache_tiles = Counter(region.tile(prompt + new) for new in range(1, output + 1))
    return sum(
        count * decode_s_per_token(model, region, tile * region.side, costs)
        for tile, count in cache_tiles.items()
    )


def relayout_s(model: Decoder, region: Region, tokens: int) -> float:
    """Seconds to move weights and KV cache from where prefill has them to where decode wants them.

    Both are moved over the network (He et al., section 4.4). Half of the bytes cross the middle of
    the prefill region, whose links, one for each row, bound the move; a lower bound, therefore.
    """
    check_least("a request", tokens=tokens)
    fabric = region.fabric
    crossing_bytes = (model.weight_bytes + model.cache_bytes(tokens)) / 2
    wavelets_per_link = crossing_bytes / (fabric.wavelet_bytes * region.side)
    return region.seconds(wavelets_per_link * fabric.cycles_per_wavelet)
