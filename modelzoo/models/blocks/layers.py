"""Parts of transformer layers: positions, feed-forward networks and norms.

Shapes: B batch, T sequence, C hidden, F filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.blocks.rotary import RotaryPosition
from modelzoo.models.blocks.transformer_config import LanguageConfig, TransformerConfig
from waferstream.core.errors import ConfigError

Routing = tuple[torch.Tensor, torch.Tensor]
"""Probability of each expert and whether it is chosen, both fp32 (B, T, E)."""


@dataclass(frozen=True)
class Routings:
    """How tokens pass the experts of all layers.

    Attributes:
        token_ids: The tokens, int64 (B, T), by which experts may be chosen; None if only their
            vectors are known.
        taken: The routing of every layer, which appends its own.
    """

    token_ids: torch.Tensor | None = None
    taken: list[Routing] = field(default_factory=list)


LONGEST_WAVE = 10000.0
"""Longest wave of sinusoids in units of 2 pi positions (Vaswani et al. 2017, section 3.5)."""


class LearnedPosition(nn.Module):
    """One trained vector per position, added to the embedded tokens."""

    def __init__(self, num_positions: int, hidden_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_positions, hidden_size))

    def forward(
        self, embedded: torch.Tensor, position_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, None]:
        """Add the vectors of the first T positions, or of (B, T) given ones; no rotation."""
        if position_ids is None:
            return embedded + self.weight[: embedded.shape[1]], None
        return embedded + F.embedding(position_ids, self.weight), None


class FixedPosition(nn.Module):
    """Sine and cosine of each position, added to the embedded tokens (Vaswani 2017, section 3.5).

    The wavelengths rise geometrically from 2 pi to 10000 * 2 pi; sines come first.
    """

    def forward(
        self, embedded: torch.Tensor, position_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, None]:
        """Add the vectors of the first T positions, or of (B, T) given ones; no rotation."""
        device, num_waves = embedded.device, embedded.shape[-1] // 2
        if position_ids is None:
            position_ids = torch.arange(embedded.shape[1], device=device)
        waves = torch.arange(num_waves, dtype=torch.float32, device=device)
        frequencies = LONGEST_WAVE ** -(waves / max(num_waves - 1, 1))
        angles = position_ids[..., None].float() * frequencies
        vectors = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return embedded + vectors.to(embedded.dtype), None


class NoPosition(nn.Module):
    """Nothing added: the scores of attention depend on distances."""

    def forward(
        self, embedded: torch.Tensor, _position_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, None]:
        """Return (B, T, C) unchanged; no rotation."""
        return embedded, None


def position_embedding(config: LanguageConfig) -> nn.Module:
    """Return a module (B, T, C) -> (B, T, C) with positions, rotation for attention or None."""
    kind = config.position_embedding_type
    if kind == "rotary":
        return RotaryPosition(config.rotated_dim, config.rope_theta, config.rope_scaling)
    if kind == "learned":
        return LearnedPosition(config.max_position_embeddings, config.hidden_size)
    return FixedPosition() if kind == "fixed" else NoPosition()


NONLINEARITIES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {
        "gelu": F.gelu,
        "gelu_new": partial(F.gelu, approximate="tanh"),
        "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
        "relu": F.relu,
        "squared_relu": lambda x: F.relu(x).square(),
        "silu": F.silu,
        "swiglu": F.silu,
        "geglu": F.gelu,
        "geglu_new": partial(F.gelu, approximate="tanh"),
        "reglu": F.relu,
    }
)
"""By the name of the key; for a gated one, of its gate."""

_LIMIT = 7.0
"""Bound of both projections of ``clamped_glu``."""


def gated(kind: str, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return a projection behind its gate, of the kind of the key."""
    if kind == "clamped_glu":  # OpenAI 2025, gpt-oss, section 2
        kind, gate = "quick_gelu", gate.clamp(max=_LIMIT)
        up = up.clamp(-_LIMIT, _LIMIT) + 1
    return NONLINEARITIES[kind](gate) * up


class FeedForward(nn.Module):
    """Two projections with a nonlinearity in between, or a gate (Shazeer 2020, eqs. 5 and 6).

    ``copies`` are so many networks of ``filter_size``, summed.
    """

    def __init__(self, config: TransformerConfig, copies: int = 1) -> None:
        super().__init__()
        hidden, bias = config.hidden_size, config.use_ffn_bias
        filters = config.filter_size * copies
        self.up = nn.Linear(hidden, filters, bias=bias)
        self.gate = nn.Linear(hidden, filters, bias=bias) if config.is_gated else None
        self.down = nn.Linear(filters, hidden, bias=bias)
        rate = config.inner_dropout_rate
        self.dropout = nn.Dropout(rate) if rate else nn.Identity()
        self._nonlinearity = config.nonlinearity

    def forward(self, x: torch.Tensor, _routings: Routings | None = None) -> torch.Tensor:
        """Return (B, T, C) through F inner elements, (B, T, C)."""
        if self.gate is None:
            inner = NONLINEARITIES[self._nonlinearity](self.up(x))
        else:
            inner = gated(self._nonlinearity, self.gate(x), self.up(x))
        projected: torch.Tensor = self.down(self.dropout(inner))
        return projected


class LayerScale(nn.Module):
    """Trained factor on each channel (Touvron et al. 2021, CaiT, section 2.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.empty(config.hidden_size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (B, T, C) times the factors."""
        return x * self.factor


class DropPath(nn.Module):
    """Stochastic depth: drops what a layer adds, for some samples (Huang et al. 2016).

    Every ``group`` consecutive samples draw together; kept values are divided by the share of kept
    samples. The samples of a micro-batch are a multiple of ``group``.
    """

    def __init__(self, rate: float, group: int = 1) -> None:
        super().__init__()
        self.rate, self._group = rate, group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (B, T, C), zero for dropped samples in training."""
        kept = F.dropout(x.new_ones(x.shape[0] // self._group, 1, 1), self.rate, self.training)
        return x * kept.expand(-1, self._group, -1).flatten(0, 1)[..., None]


def drop_path(config: TransformerConfig, layer: int) -> nn.Module:
    """Return the module that drops parts of a layer, or the identity."""
    rate = config.drop_path_rate(layer)
    return DropPath(rate, config.drop_path_group) if rate else nn.Identity()


def layer_scale(config: TransformerConfig) -> nn.Module:
    """Return the factors on what a layer adds, or the identity."""
    return nn.Identity() if config.layer_scale is None else LayerScale(config)


def norm(config: TransformerConfig) -> nn.Module:
    """Return the normalization that the configuration selects, over the hidden dimension."""
    kind = nn.LayerNorm if config.norm_type == "layernorm" else nn.RMSNorm
    return kind(config.hidden_size, eps=config.layer_norm_epsilon)


def check_length(config: LanguageConfig, length: int) -> None:
    """Raise ConfigError for a sequence of more tokens than ``max_position_embeddings``."""
    if length > config.max_position_embeddings:
        raise ConfigError(
            "the sequence must be at most max_position_embeddings long",
            code="sequence-too-long",
            value=f"{length}, max_position_embeddings {config.max_position_embeddings}",
            remedy="raise max_position_embeddings or lower max_sequence_length",
        )
