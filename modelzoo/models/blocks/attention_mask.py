"""Terms added to attention scores: causal order, patterns, packed documents, and distances.

A term is 0 or a bias where a query (row) reads a key (column), and minus infinity elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import torch
from torch import nn

from modelzoo.models.blocks.key_patterns import KeyPattern


def padding_mask(attention_mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the term added to attention scores, (B, 1, 1, T): 0 at tokens, minimum at padding.

    The minimum is finite, so that a sequence of padding only gives a mean instead of NaN.
    """
    padding = 1 - attention_mask[:, None, None, :].to(dtype)
    return padding * torch.finfo(dtype).min


def distances(length: int, device: torch.device) -> torch.Tensor:
    """Return how far the key lies before the query, int64 (T, T); negative for later keys."""
    positions = torch.arange(length, device=device)
    return positions[:, None] - positions


def readable_keys(
    before: torch.Tensor,
    window: int | None = None,
    sink_tokens: int = 0,
    attention_span: torch.Tensor | None = None,
    patterns: Sequence[KeyPattern] = (),
) -> torch.Tensor:
    """Return whether a query reads a key, (T, T) or (H, T, T), or (B, 1 or H, T, T) with spans.

    Args:
        before: Distances (T, T).
        window: Keys that a query reads, itself included (Jiang et al. 2023, Mistral 7B,
            section 2); None for all.
        sink_tokens: First tokens, which every later query reads in spite of the window.
        attention_span: Later queries of the same document that read a key, (B, T).
        patterns: Keys that a query reads besides the window, and alone without one.
    """
    near = [pattern.reads(before) for pattern in patterns]
    if window is not None:
        near.append(before < window)
        if sink_tokens:
            keys = torch.arange(before.shape[-1], device=before.device)
            near.append((keys < sink_tokens).expand(before.shape))
    reads = before >= 0
    if near:
        reads = reads & reduce(torch.logical_or, near)
    if attention_span is not None:
        reads = reads & (before <= attention_span[:, None, None, :])
    return reads


def readable_in_document(
    before: torch.Tensor, attention_span: torch.Tensor, position_ids: torch.Tensor
) -> torch.Tensor:
    """Return whether a query reads a key of the same packed document, (B, 1, T, T).

    Args:
        before: Distances (T, T).
        attention_span: Later tokens of the same document, (B, T).
        position_ids: Positions within the documents, which are the earlier tokens, (B, T).
    """
    later, earlier = attention_span[:, None, None, :], position_ids[:, None, None, :]
    return (before <= later) & (-before <= earlier)


def as_term(reads: torch.Tensor, bias: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """Return the term of ``reads`` and a bias (H, T, T), in dtype of ``like``."""
    if bias is None:
        bias = torch.zeros((), dtype=torch.float32, device=like.device)
    term = bias.to(like.dtype).masked_fill(~reads, -math.inf)
    return term if term.ndim == 4 else term.expand(1, *(1,) * (3 - term.ndim), *term.shape)


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the slope of each head (Press et al. 2022, ALiBi, section 3).

    Heads beyond a power of two take every other slope of twice as many heads, as in the published
    code of the paper.
    """
    power = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    if power == num_heads:
        return slopes
    return slopes + alibi_slopes(2 * power)[::2][: num_heads - power]


class AlibiBias(nn.Module):
    """Linear penalty on distance, with one slope for each head (Press et al. 2022, ALiBi)."""

    def __init__(self, num_heads: int, scaling_factor: float, is_trained: bool) -> None:
        super().__init__()
        self._fixed = [slope / scaling_factor for slope in alibi_slopes(num_heads)]
        self.slopes = nn.Parameter(torch.empty(num_heads)) if is_trained else None

    def forward(self, before: torch.Tensor) -> torch.Tensor:
        """Return the bias fp32 (H, T, T) of distances (T, T)."""
        fixed = torch.tensor(self._fixed, device=before.device)
        slopes = fixed if self.slopes is None else self.slopes
        return -slopes.float()[:, None, None] * before.abs()

    @torch.no_grad()
    def initialize(self) -> None:
        """Fill trained slopes with the fixed ones."""
        if self.slopes is not None:
            for head, slope in enumerate(self._fixed):
                self.slopes[head].fill_(slope)


_MAX_DISTANCE = 128
"""Distance from which all positions share the last bucket (Raffel et al. 2020, T5, section 2.1)."""


class RelativeBias(nn.Module):
    """Trained bias for each head and bucket of distances (Raffel et al. 2020, T5, section 2.1).

    If queries read later keys, those have the second half of the buckets.
    """

    def __init__(self, num_buckets: int, num_heads: int, *, reads_later: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(num_buckets, num_heads)
        self._reads_later = reads_later

    def forward(self, before: torch.Tensor) -> torch.Tensor:
        """Return the bias fp32 (H, T, T) of distances (T, T)."""
        num_buckets = self.table.num_embeddings
        if self._reads_later:
            later = num_buckets // 2
            buckets = buckets_of(before.abs(), later) + torch.where(before < 0, later, 0)
        else:
            buckets = buckets_of(before.clamp(min=0), num_buckets)
        bias: torch.Tensor = self.table(buckets).float().permute(2, 0, 1)
        return bias


def buckets_of(distance: torch.Tensor, num_buckets: int) -> torch.Tensor:
    """Return the bucket of each distance from 0 on: the first half have one each, others share."""
    near = num_buckets // 2
    growth = torch.log(distance.clamp(min=1).float() / near) / math.log(_MAX_DISTANCE / near)
    far = (near + (growth * near).long()).clamp(max=num_buckets - 1)
    return torch.where(distance < near, distance, far)
