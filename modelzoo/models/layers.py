"""Transformer layers, and the initialization of weights.

Shapes: B batch, T sequence, H heads, D head, C hidden, F filter. ``TransformerConfig.residual``
selects the layer (A attention, F feed-forward, N a separate norm at each place):
    pre_norm    x + A(N x), then x + F(N x)         (Radford et al. 2019, GPT-2)
    post_norm   N(x + A x), then N(x + F x)         (Vaswani et al. 2017)
    parallel    x + A(N x) + F(N x)                 (Wang and Komatsuzaki 2021, GPT-J)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.transformer_config import LanguageConfig, TransformerConfig
from wsc.core.errors import ConfigError
from wsc.core.rng import stream_key

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines, each (T, 1, rotary_dim / 2), broadcast over heads."""


class LearnedPosition(nn.Module):
    """One trained vector per position, added to the embedded tokens."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.max_position_embeddings, config.hidden_size))

    def forward(self, embedded: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Add the first T position vectors to (B, T, C); there is no rotation."""
        return embedded + self.weight[: embedded.shape[1]], None


class RotaryPosition(nn.Module):
    """Angles of rotary position embedding (Su et al. 2021, RoFormer, section 3.2.2).

    Pair i of position t is rotated by t * theta^(-2i / rotary_dim). Computed in fp32, because bf16
    does not distinguish positions above 256; returned in the dtype of the activations.
    """

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        self._rotary_dim = config.rotated_dim
        self._theta = config.rope_theta

    def forward(self, embedded: torch.Tensor) -> tuple[torch.Tensor, Rotation]:
        """Return (B, T, C) unchanged, and the rotation of T positions."""
        device, dtype = embedded.device, embedded.dtype
        exponents = torch.arange(0, self._rotary_dim, 2, dtype=torch.float32, device=device)
        frequencies = self._theta ** (-exponents / self._rotary_dim)
        positions = torch.arange(embedded.shape[1], dtype=torch.float32, device=device)
        angles = (positions[:, None] * frequencies)[:, None, :]
        return embedded, (angles.cos().to(dtype), angles.sin().to(dtype))


def position_embedding(config: LanguageConfig) -> nn.Module:
    """Return a module (B, T, C) -> (B, T, C) with positions, rotation for attention or None."""
    kind = RotaryPosition if config.position_embedding_type == "rotary" else LearnedPosition
    return kind(config)


def padding_mask(attention_mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the term added to attention scores, (B, 1, 1, T): 0 at tokens, minimum at padding.

    The minimum is finite, so that a sequence of padding only gives a mean instead of NaN.
    """
    padding = 1 - attention_mask[:, None, None, :].to(dtype)
    return padding * torch.finfo(dtype).min


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


class Attention(nn.Module):
    """Self-attention, causal if the configuration is.

    Grouped-query attention if there are fewer key and value heads than query heads (Ainslie et al.
    2023, GQA).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        hidden, kv_width = config.hidden_size, config.num_kv_heads * config.head_dim
        bias = config.use_projection_bias_in_attention
        self.query = nn.Linear(hidden, hidden, bias=bias)
        self.key = nn.Linear(hidden, kv_width, bias=bias)
        self.value = nn.Linear(hidden, kv_width, bias=bias)
        self.output = nn.Linear(hidden, hidden, bias=config.use_ffn_bias_in_attention)
        self._head_dim = config.head_dim
        self._queries_per_kv = config.num_heads // config.num_kv_heads
        self._is_causal = config.is_causal
        is_scaled = config.attention_type == "scaled_dot_product"
        self.scale = config.head_dim**-0.5 if is_scaled else 1.0
        self.dropout_rate = config.attention_dropout_rate

    def forward(
        self, x: torch.Tensor, rotation: Rotation | None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return attention of (B, T, C) over itself, (B, T, C)."""
        query, key, value = (
            projection(x).unflatten(-1, (-1, self._head_dim))
            for projection in (self.query, self.key, self.value)
        )
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        mixed = self.mix(
            query.transpose(1, 2),
            self._for_each_query(key).transpose(1, 2),
            self._for_each_query(value).transpose(1, 2),
            mask,
        )
        projected: torch.Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return projected

    def mix(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return softmax(scores) @ value, (B, H, T, D), in one fused kernel."""
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=self._is_causal,
            dropout_p=self.dropout_rate if self.training else 0.0,
            scale=self.scale,
        )

    def _for_each_query(self, heads: torch.Tensor) -> torch.Tensor:
        """Repeat each of (B, T, kv heads, D) for the query heads that share it."""
        if self._queries_per_kv == 1:
            return heads
        return heads.repeat_interleave(self._queries_per_kv, dim=2)


_NONLINEARITIES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = MappingProxyType(
    {"gelu": F.gelu, "gelu_new": partial(F.gelu, approximate="tanh"), "relu": F.relu}
)


class FeedForward(nn.Module):
    """Two projections with a nonlinearity in between; SwiGLU adds a gate (Shazeer 2020, eq. 6)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        hidden, filters, bias = config.hidden_size, config.filter_size, config.use_ffn_bias
        self.up = nn.Linear(hidden, filters, bias=bias)
        is_gated = config.nonlinearity == "swiglu"
        self.gate = nn.Linear(hidden, filters, bias=bias) if is_gated else None
        self.down = nn.Linear(filters, hidden, bias=bias)
        self._nonlinearity = _NONLINEARITIES.get(config.nonlinearity, F.gelu)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (B, T, C) through F inner elements, (B, T, C)."""
        if self.gate is None:
            inner = self._nonlinearity(self.up(x))
        else:
            inner = F.silu(self.gate(x)) * self.up(x)
        projected: torch.Tensor = self.down(inner)
        return projected


class TransformerLayer(nn.Module):
    """Pre-norm layer: attention and feed-forward read a norm of the residual stream."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention_norm = norm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = norm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(
        self, x: torch.Tensor, rotation: Rotation | None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the residual stream (B, T, C) after this layer."""
        x = x + self.dropout(self.attention(self.attention_norm(x), rotation, mask))
        added: torch.Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return added


class PostNormLayer(TransformerLayer):
    """Post-norm layer: the residual stream is normalized after each addition."""

    def forward(
        self, x: torch.Tensor, rotation: Rotation | None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the residual stream (B, T, C) after this layer."""
        x = self.attention_norm(x + self.dropout(self.attention(x, rotation, mask)))
        added: torch.Tensor = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return added


class ParallelLayer(nn.Module):
    """Parallel layer: attention and feed-forward read the same stream, by one norm or two."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention_norm = norm(config)
        self.attention = Attention(config)
        self.feed_forward_norm = None if config.shares_layer_norm else norm(config)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(
        self, x: torch.Tensor, rotation: Rotation | None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the residual stream (B, T, C) after this layer."""
        read = self.attention_norm(x)
        also_read = read if self.feed_forward_norm is None else self.feed_forward_norm(x)
        sum_of_both = self.attention(read, rotation, mask) + self.feed_forward(also_read)
        added: torch.Tensor = x + self.dropout(sum_of_both)
        return added


def transformer_layers(config: TransformerConfig) -> nn.ModuleList:
    """Return all layers of a model, of the kind that the configuration selects."""
    kinds = {"pre_norm": TransformerLayer, "post_norm": PostNormLayer, "parallel": ParallelLayer}
    return nn.ModuleList(kinds[config.residual](config) for _ in range(config.num_hidden_layers))


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


@torch.no_grad()
def fill_parameters(
    model: nn.Module, seed: int, std: float, exceptions: Mapping[str, float] = MappingProxyType({})
) -> None:
    """Initialize each parameter from (seed, its name) alone.

    Args:
        model: Its biases become 0, norm weights 1, all other weights normal.
        seed: Seed of all generators.
        std: Standard deviation of the weights.
        exceptions: Standard deviations by the end of a parameter's name; 0 gives zeros.
    """
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.zero_()
        elif name.endswith("norm.weight"):
            parameter.fill_(1)
        else:
            own = next((exceptions[end] for end in exceptions if name.endswith(end)), std)
            generator = torch.Generator().manual_seed(stream_key(seed, "init", name))
            parameter.normal_(0, own, generator=generator)
