"""Rotary position embedding and its scalings to longer sequences.

Keys ``pos_scaling_type``, ``pos_scaling_factor`` and ``pos_scaling_extra_args`` of a model section
(Model Zoo 2.10).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import nn

from waferstream.core.config import Config, validate_part

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines, (T, 1, rotary_dim / 2) or one such per sample, broadcast over heads."""


class RopeScaling(Config):
    """How angles change for sequences longer than those of the first training."""

    def apply(self, frequencies: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return the scaled frequencies of pairs, and the factor of cosines and sines."""
        return frequencies, 1.0


class LinearScaling(RopeScaling):
    """Interpolated positions (Chen et al. 2023, Position Interpolation, eq. 4)."""

    factor: PositiveFloat = 1.0

    def apply(self, frequencies: torch.Tensor) -> tuple[torch.Tensor, float]:
        return frequencies / self.factor, 1.0


class YarnScaling(RopeScaling):
    """Interpolation of slow pairs only (Peng et al. 2023, YaRN, sections 3.2 and 3.4)."""

    factor: PositiveFloat = 1.0
    dim: PositiveInt
    theta: PositiveFloat
    original_max_position_embeddings: PositiveInt
    beta_fast: PositiveFloat = 32.0
    """Pairs that turn more often within the original length are kept as they are."""
    beta_slow: PositiveFloat = 1.0
    """Pairs that turn less often are interpolated in full."""
    extrapolation_factor: float = 1.0
    mscale_a: float = 0.1
    mscale_b: float = 1.0
    """Cosines and sines are multiplied by a ln(factor) + b (section 3.4)."""
    truncate: bool = True
    """Whether the bounds of the ramp are rounded to whole pairs."""

    def apply(self, frequencies: torch.Tensor) -> tuple[torch.Tensor, float]:
        low, high = self._pair(self.beta_fast), self._pair(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.dim - 1)
        width = max(high - low, 0.001)  # equal bounds are a step
        pairs = torch.arange(len(frequencies), dtype=torch.float32, device=frequencies.device)
        kept = (1 - ((pairs - low) / width).clamp(0, 1)) * self.extrapolation_factor
        scaled = frequencies / self.factor * (1 - kept) + frequencies * kept
        grown = self.factor > 1
        return scaled, self.mscale_a * math.log(self.factor) + self.mscale_b if grown else 1.0

    def _pair(self, turns: float) -> float:
        """Return the pair that turns so often within the original length."""
        wavelength = self.original_max_position_embeddings / (turns * 2 * math.pi)
        return self.dim * math.log(wavelength) / (2 * math.log(self.theta))


class Llama3Scaling(RopeScaling):
    """Slow pairs divided, fast pairs kept (Llama 3.1: Grattafiori et al. 2024, section 3.2).

    The published code of the model defines the ramp between both.
    """

    factor: PositiveFloat = 8.0
    original_max_position_embeddings: PositiveInt = 8192
    low_freq_factor: PositiveFloat = 1.0
    high_freq_factor: PositiveFloat = 4.0

    def apply(self, frequencies: torch.Tensor) -> tuple[torch.Tensor, float]:
        turns = self.original_max_position_embeddings * frequencies / (2 * math.pi)
        ramp = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = ramp.clamp(0, 1)
        return frequencies / self.factor * (1 - kept) + frequencies * kept, 1.0


class LongRopeScaling(RopeScaling):
    """A searched divisor for each pair (Ding et al. 2024, LongRoPE, section 3)."""

    max_position_embeddings: PositiveInt
    original_max_position_embeddings: PositiveInt
    long_factor: tuple[PositiveFloat, ...] = ()
    short_factor: tuple[PositiveFloat, ...] = ()
    long_mscale: float | None = None
    short_mscale: float | None = None
    attention_factor: float | None = None

    def apply(self, frequencies: torch.Tensor) -> tuple[torch.Tensor, float]:
        growth = self.max_position_embeddings / self.original_max_position_embeddings
        is_long = growth > 1
        divisors = self.long_factor if is_long else self.short_factor
        if len(divisors) != len(frequencies):
            name = "long_factor" if is_long else "short_factor"
            raise ValueError(f"{name} must have one number for each of {len(frequencies)} pairs")
        default = 1.0
        if is_long:
            default += math.log(growth) / math.log(self.original_max_position_embeddings)
        stated = (self.long_mscale if is_long else self.short_mscale, self.attention_factor)
        mscale = next((each for each in stated if each is not None), math.sqrt(default))
        return frequencies / frequencies.new_tensor(divisors), mscale


def rope_scaling(
    kind: Literal["linear", "yarn", "YaRN", "llama3", "longrope"],
    factor: float,
    extra: Mapping[str, object],
    *,
    dim: int,
    theta: float,
    max_position_embeddings: int,
) -> RopeScaling:
    """Return the scaling of the keys of a model section; ValueError for a wrong extra argument."""
    if kind == "linear":
        return validate_part(LinearScaling, {"factor": factor, **extra})
    if kind == "llama3":
        return validate_part(Llama3Scaling, {"factor": factor, **extra})
    if kind == "longrope":
        length = {"max_position_embeddings": max_position_embeddings}
        return validate_part(LongRopeScaling, {**length, **extra})
    return validate_part(YarnScaling, {"factor": factor, "dim": dim, "theta": theta, **extra})


class RotaryPosition(nn.Module):
    """Angles of rotary position embedding (Su et al. 2021, RoFormer, section 3.2.2).

    Pair i of position t is rotated by t * theta^(-2i / rotary_dim). Computed in fp32, because bf16
    does not distinguish positions above 256; returned in the dtype of the activations.
    """

    def __init__(self, rotary_dim: int, theta: float, scaling: RopeScaling | None = None) -> None:
        super().__init__()
        self._rotary_dim = rotary_dim
        self._theta = theta
        self._scaling = scaling or RopeScaling()

    def forward(
        self, embedded: torch.Tensor, position_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Rotation]:
        """Return (B, T, C) unchanged, and the rotation of T positions, of (B, T) if given."""
        device, dtype = embedded.device, embedded.dtype
        exponents = torch.arange(0, self._rotary_dim, 2, dtype=torch.float32, device=device)
        frequencies, mscale = self._scaling.apply(self._theta ** (-exponents / self._rotary_dim))
        if position_ids is None:
            positions = torch.arange(embedded.shape[1], dtype=torch.float32, device=device)
        else:
            positions = position_ids.float()
        angles = (positions[..., None] * frequencies)[..., None, :]
        cos, sin = angles.cos(), angles.sin()
        if mscale != 1.0:
            cos, sin = cos * mscale, sin * mscale
        return embedded, (cos.to(dtype), sin.to(dtype))


def rotate(heads: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotate the leading elements of each head of (B, T, H, D).

    Element i of the first half pairs with element i of the second half, as in LLaMA. GPT-J pairs
    neighbours, which is the same up to the order of rows in the query and key weights.
    """
    cos, sin = rotation
    half = cos.shape[-1]
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    turned = [first * cos - second * sin, second * cos + first * sin]
    return torch.cat([*turned, rest] if rest.shape[-1] else turned, dim=-1)
