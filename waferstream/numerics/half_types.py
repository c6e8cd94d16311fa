"""Types of 16 bits as kernels hold them in fp32: layouts, and rounding to nearest or by chance.

*Stochastic rounding* gives one of the two neighbours of a number: the upper one with the
probability ``(x - lower) / (upper - lower)``, so that the mean over many draws is the number (Gupta
et al. 2015, arXiv:1502.02551, "Rounding Modes"). As many random bits as the type has mantissa bits
less than fp32 are added to the number's last ones, whose carry is the rounding. What follows:

    numbers of the type  stay as they are; so do zeros and infinities with their sign, and NaN
    subnormal numbers    the neighbours are multiples of the smallest one; a number between them is
                         first rounded to as many bits as random bits decide (13, 14 or 16)
    overflow             the neighbours of a number between the largest one and the next power of
                         two are these two; the power of two and all beyond are infinite

Random bits are keyed by (micro-batch's key, place of the op), and drawn in the order of elements
(row-major), so they do not depend on strides.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from waferstream.core.rng import stream_key
from waferstream.numerics import cbfloat16


class _Layout(NamedTuple):
    """A type of 16 bits, by what fp32 has more."""

    dropped_bits: int  # of the mantissa
    smallest_normal: float  # 0 where it is that of fp32
    overflow: float  # the power of two beyond the largest number


_LAYOUTS = {
    "bfloat16": _Layout(16, 0.0, 2.0**128),
    "float16": _Layout(13, 2.0**-14, 2.0**16),
    "cbfloat16": _Layout(14, 2.0**-30, 2.0**32),
}


def nearest(x: torch.Tensor, half: str) -> torch.Tensor:
    """Return numbers rounded to the nearest of a half type, in fp32."""
    if half == "cbfloat16":
        return cbfloat16.rounded(x)
    dtype = torch.bfloat16 if half == "bfloat16" else torch.float16
    return x.to(dtype).to(torch.float32)


def stochastic(x: torch.Tensor, half: str, key: int, place: int) -> torch.Tensor:
    """Return numbers rounded to a half type by chance, in fp32.

    Args:
        x: fp32 numbers.
        half: ``bfloat16``, ``float16`` or ``cbfloat16``.
        key: The key of the micro-batch.
        place: The op among those of the step that round.
    """
    dropped, smallest_normal, overflow = _LAYOUTS[half]
    x = x.to(torch.float32)
    near = x.abs()
    bits = near.view(torch.int32)
    random = _random_bits(x, dropped, key, place)
    if not smallest_normal:
        bits.add_(random).bitwise_and_(-1 << dropped)
    else:
        # Beside the smallest normal number, the bits of fp32 end where those of the half type do.
        shift = (near < smallest_normal).to(torch.float32).mul_(smallest_normal)
        near += shift
        bits.add_(random).bitwise_and_(-1 << dropped)
        near -= shift
        near.masked_fill_(near >= overflow, torch.inf)
    return near.masked_fill_(x.isnan(), torch.nan).copysign_(x)


def stochastic_(x: torch.Tensor, half: str, key: int, place: int) -> torch.Tensor:
    """Round numbers to a half type by chance in place; return them."""
    return x.copy_(stochastic(x, half, key, place))


stochastic_.waferstream_overwrites = 0  # type: ignore[attr-defined]  # see waferstream.compiler.storages
torch.fx.node.has_side_effect(stochastic_)


def nearest_(x: torch.Tensor, half: str) -> torch.Tensor:
    """Round numbers to the nearest of a half type in place; return them."""
    return x.copy_(nearest(x, half))


nearest_.waferstream_overwrites = 0  # type: ignore[attr-defined]
torch.fx.node.has_side_effect(nearest_)


def _random_bits(x: torch.Tensor, count: int, key: int, place: int) -> torch.Tensor:
    """Return ``count`` random bits for each element of ``x``, as an integer from 0."""
    generator = torch.Generator().manual_seed(stream_key(key, "rounding", place))
    quads = torch.empty(-(-x.numel() // 4), dtype=torch.int64)
    quads.random_(-(2**63), None, generator=generator)  # all 64 bits
    drawn = quads.view(torch.int16)[: x.numel()].view(x.shape).to(x.device)
    return drawn.to(torch.int32).bitwise_and_((1 << count) - 1)
