"""Weights of experts in MXFP4: 4 bits each, and a power of 2 for every 32 of them.

Format: OCP Microscaling Formats (MX) v1.0, sections 5.3.3 and 5.4, as gpt-oss packs it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from modelzoo.converters.weights import Weights
from waferstream.core.errors import CheckpointError

_BLOCKS, _SCALES = "_blocks", "_scales"

_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""By the code of a number without its sign."""

_BIAS = 127
"""The exponent of 1."""


def unpacked(weights: Mapping[str, torch.Tensor]) -> Weights:
    """Return weights of which those in MXFP4 have their value in bf16, which is exact.

    Raises:
        CheckpointError: Blocks have no scales that fit them.
    """
    found = {name: weight for name, weight in weights.items() if not _is_packed(name, weights)}
    for name in weights.keys() - found.keys():
        if name.endswith(_BLOCKS):
            plain = name.removesuffix(_BLOCKS)
            found[plain] = _values(name, weights[name], weights[plain + _SCALES])
    return found


def _is_packed(name: str, weights: Mapping[str, torch.Tensor]) -> bool:
    plain = name.removesuffix(_BLOCKS).removesuffix(_SCALES)
    return plain != name and {plain + _BLOCKS, plain + _SCALES} <= weights.keys()


def _values(name: str, blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return (E, inputs, outputs) of blocks (E, outputs, G, bytes) and scales (E, outputs, G)."""
    are_bytes = blocks.dtype is torch.uint8 and scales.dtype is torch.uint8
    if blocks.ndim != 4 or blocks.shape[:-1] != scales.shape or not are_bytes:
        raise CheckpointError(
            f"weight {name!r} must be blocks with a scale each",
            code="mxfp4-malformed",
            value=f"{tuple(blocks.shape)} and scales {tuple(scales.shape)}",
            remedy="download the weights again",
        )
    values = torch.tensor([*_VALUES, *(-value for value in _VALUES)], dtype=torch.bfloat16)
    pairs = torch.stack([blocks & 15, blocks >> 4], dim=-1)
    numbers = values[pairs.int()].flatten(-2)
    scaled = torch.ldexp(numbers, scales[..., None].int() - _BIAS)
    return scaled.flatten(-2).transpose(1, 2)
