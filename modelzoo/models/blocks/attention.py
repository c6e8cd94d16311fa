"""Attention with shared key and value heads, rotation, norms and capped scores.

Shapes: B batch, T sequence, H heads, D head, C hidden.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.blocks.attention_mask import as_term, distances, readable_keys
from modelzoo.models.blocks.memory_tokens import MemoryLinear
from modelzoo.models.blocks.rotary import Rotation, rotate
from modelzoo.models.blocks.transformer_config import NormType, TransformerConfig
from waferstream.numerics.forms import has_forms


def head_norm(kind: NormType | None, size: int, epsilon: float) -> nn.Module:
    """Return the normalization of queries or keys over a head."""
    if kind is None:
        return nn.Identity()
    return nn.LayerNorm(size, epsilon) if kind == "layernorm" else nn.RMSNorm(size, epsilon)


@has_forms
def causal_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    first_tokens: int = 0,
    cap: float | None = None,
    sinks: torch.Tensor | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """Return attention of (B, H, T, D) in which a query reads a window of the keys before it.

    Arguments are those of ``readable_keys`` and ``masked_attention``.
    """
    before = distances(query.shape[-2], query.device)
    mask = as_term(readable_keys(before, window, first_tokens), None, query)
    return masked_attention(
        query, key, value, mask, scale=scale, cap=cap, sinks=sinks, dropout_p=dropout_p
    )


def masked_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    *,
    scale: float,
    cap: float | None = None,
    sinks: torch.Tensor | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """Return attention of (B, H, T, D) with a term of its scores.

    A cap bounds the scores before the term is added (Gemma Team 2024, Gemma 2, section 2). Sinks
    (H,) are scores of no key, which take their share of the weights (OpenAI 2025, gpt-oss).
    """
    if cap is None and sinks is None:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout_p, scale=scale
        )
    scores = (query @ (key * scale).transpose(-2, -1)).float()
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    scores = scores + mask.float()
    if sinks is not None:
        beside = sinks.float()[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, beside], dim=-1)
    weights = scores.softmax(-1)[..., : key.shape[-2]].to(value.dtype)
    return F.dropout(weights, dropout_p, training=True) @ value


class Attention(nn.Module):
    """Attention; of a sequence over itself causal without a mask if the configuration is.

    A mask states everything that a query reads, later keys included.

    Grouped-query attention if there are fewer key and value heads than query heads (Ainslie et al.
    2023, GQA).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        hidden, kv_width = config.hidden_size, config.num_kv_heads * config.head_dim
        width, bias = config.attention_width, config.use_projection_bias_in_attention
        places = config.projected_memory
        linear = nn.Linear if places is None else partial(MemoryLinear, places)
        self.query = linear(hidden, width, bias=bias)
        self.key = linear(hidden, kv_width, bias=bias)
        self.value = linear(hidden, kv_width, bias=bias)
        self.output = linear(width, hidden, bias=config.use_ffn_bias_in_attention)
        scores = config.scores
        self.query_norm, self.key_norm = (
            head_norm(scores.norm_type, config.head_dim, scores.norm_epsilon) for _ in range(2)
        )
        self._head_dim = config.head_dim
        self._queries_per_kv = config.num_heads // config.num_kv_heads
        self._is_causal = config.is_causal
        self.scale = scores.scale
        self._score_cap = scores.cap
        self.sinks = nn.Parameter(torch.empty(config.num_heads)) if scores.has_sinks else None
        self.window: int | None = None
        """Keys that a query reads, itself included, and the ``first_tokens``; all by default."""
        self.first_tokens = 0
        self.dropout_rate = config.attention_dropout_rate

    def forward(
        self,
        x: torch.Tensor,
        rotation: Rotation | None,
        mask: torch.Tensor | None = None,
        memory: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return attention of (B, T, C) over itself, or over a memory (B, S, C), (B, T, C)."""
        read = x if memory is None else memory
        query, key, value = (
            projection(source).unflatten(-1, (-1, self._head_dim))
            for projection, source in ((self.query, x), (self.key, read), (self.value, read))
        )
        query, key = self.query_norm(query), self.key_norm(key)
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
        """Return softmax(scores) @ value, (B, H, T, D), in one fused kernel where torch has it."""
        rate = self.dropout_rate if self.training else 0.0
        if mask is not None:
            return masked_attention(
                query,
                key,
                value,
                mask,
                scale=self.scale,
                cap=self._score_cap,
                sinks=self.sinks,
                dropout_p=rate,
            )
        if self.window is None and self._score_cap is None and self.sinks is None:
            return F.scaled_dot_product_attention(
                query, key, value, is_causal=self._is_causal, dropout_p=rate, scale=self.scale
            )
        return causal_attention(
            query,
            key,
            value,
            scale=self.scale,
            window=self.window,
            first_tokens=self.first_tokens,
            cap=self._score_cap,
            sinks=self.sinks,
            dropout_p=rate,
        )

    def _for_each_query(self, heads: torch.Tensor) -> torch.Tensor:
        """Repeat each of (B, T, kv heads, D) for the query heads that share it."""
        if self._queries_per_kv == 1:
            return heads
        return heads.repeat_interleave(self._queries_per_kv, dim=2)


class SoftmaxFp32Attention(Attention):
    """Attention in three kernels, with a softmax in fp32 on a separate tensor of scores.

    The fused kernel of language models also sums in fp32 but keeps scores in the dtype of the
    activations.
    """

    def mix(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return softmax(scores) @ value, (B, H, T, D)."""
        scores = query @ (key * self.scale).transpose(-2, -1)
        if mask is not None:
            scores = scores + mask
        weights = scores.float().softmax(-1).to(value.dtype)
        return F.dropout(weights, self.dropout_rate, self.training) @ value


def attention(config: TransformerConfig) -> Attention:
    """Return the attention that a configuration selects."""
    return SoftmaxFp32Attention(config) if config.has_fp32_softmax else Attention(config)
