"""Attention of rows over the keys and values of all tokens of their sequences.

A query row over masked keys has the same bits alone, in a batch, and for any padding to blocks, if
torch's fused kernel runs in one thread; so have the products of a single row with its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from csnode.engine.array import WaferArray
from csnode.engine.kernels import KERNELS
from csnode.inference.cache import KvCache, padded
from csnode.inference.row_forms import in_whole_vectors
from csnode.lanes import single_threaded
from waferstream.core.program.extend import not_row_wise
from waferstream.core.serving import Part

Tensor = torch.Tensor

Mix = Callable[[Tensor, Tensor, Tensor, Tensor, float, float | None, Tensor | None], Tensor]
"""Attention of rows of one sequence, (T, heads, 1, D): of queries, keys and values (heads, S, D),
the term of scores (T, 1, 1, S), and their scale, cap and sinks."""


class CachedAttention:
    """The op ``cached_attention`` of a stage.

    Args:
        cache: What the sequences have so far.
        array: The array of PEs that computes it; torch if None.
    """

    def __init__(self, cache: KvCache, array: WaferArray | None = None) -> None:
        self._cache = cache
        self._mix: Mix = _mix if array is None else partial(_mix_on, array)
        self._parts: Sequence[Part] = ()
        self._masks: dict[tuple[int | None, int], list[Tensor]] = {}

    def begin(self, parts: Sequence[Part]) -> None:
        """Take the sequences of the next rows, in their order."""
        self._parts = parts
        self._masks = {}

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layer: int,
        scale: float,
        window: int | None = None,
        first_tokens: int = 0,
        cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Return the attention of rows (N, heads, 1, D).

        Args:
            query: Of each row.
            key: Likewise.
            value: Likewise.
            layer: The number of the layer, by which the cache keeps keys and values.
            scale: Of the scores.
            window: Tokens that a row reads, its own included; by default all before it.
            first_tokens: First ones of a sequence, which it reads besides.
            cap: What scores approach by tanh.
            sinks: A score of each head that takes a share of the weights, (heads,).
        """
        mixed, first = torch.empty_like(query), 0
        for part, mask in zip(self._parts, self._masks_of(window, first_tokens), strict=True):
            rows = slice(first, first + len(part.tokens))
            keys, values = self._cache.extend(
                part.sequence, layer, part.start, key[rows, :, 0], value[rows, :, 0]
            )
            term = mask.to(query.dtype)
            mixed[rows] = self._mix(query[rows], keys, values, term, scale, cap, sinks)
            first = rows.stop
        return mixed

    def _masks_of(self, window: int | None, first_tokens: int) -> list[Tensor]:
        """Return the term of scores of each part's rows, which layers alike share."""
        key = window, first_tokens
        if key not in self._masks:
            self._masks[key] = [_mask_of(part, window, first_tokens) for part in self._parts]
        return self._masks[key]


def _mask_of(part: Part, window: int | None, first_tokens: int) -> Tensor:
    """Return the term of scores of a part's rows over the blocks of its sequence, (T, 1, 1, S)."""
    end = part.start + len(part.tokens)
    keys, rows = torch.arange(padded(end)), torch.arange(part.start, end)[:, None]
    hidden = keys > rows
    if window is not None:
        hidden |= (keys <= rows - window) & (keys >= first_tokens)
    return torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))[:, None, None]


def _mix(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    scale: float,
    cap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Return attention by torch's kernels, over whole blocks of the cache."""
    if cap is not None and sinks is not None:
        raise not_row_wise("its attention has both a cap of scores and sinks")
    with single_threaded():
        if cap is not None:
            rows = zip(query, mask, strict=True)
            each = [_capped(row * scale, keys, values, term, cap) for row, term in rows]
            return torch.stack(each)
        keys, values = (each.expand(len(mask), -1, -1, -1) for each in (keys, values))
        mixed, log_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, keys, values, attn_mask=mask, scale=scale
        )
        found: Tensor = mixed if sinks is None else mixed * _share(log_sums, sinks)
        return found


def _share(log_sums: Tensor, sinks: Tensor) -> Tensor:
    """Return the share of weights that keys have beside sinks, (T, heads, 1, 1).

    Args:
        log_sums: The logarithm of the sum of the keys' exponentials, fp32 (T, heads, 1).
        sinks: The scores that compete with it, (heads,).
    """
    share = in_whole_vectors(torch.sigmoid, log_sums[..., 0] - sinks.float())
    return share[..., None, None].to(sinks.dtype)


def _capped(row: Tensor, keys: Tensor, values: Tensor, term: Tensor, cap: float) -> Tensor:
    """Return the attention of a scaled row (heads, 1, D) whose scores have a cap."""
    scores = torch.bmm(row, keys.transpose(1, 2)).float()
    weights = (cap * torch.tanh(scores / cap) + term).softmax(-1)
    return torch.bmm(weights.to(values.dtype), values)


def _mix_on(
    array: WaferArray,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor,
    scale: float,
    cap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Return attention in the order of an array of PEs, row by row over the tokens it reads."""
    if cap is not None or sinks is not None:
        raise not_row_wise("the array of PEs has no attention with a cap of scores or sinks")
    attention = KERNELS["_scaled_dot_product_flash_attention_for_cpu"]
    rows = []
    for row, term in zip(query, mask, strict=True):
        reads = torch.isfinite(term[0, 0])
        held = keys[None, :, reads], values[None, :, reads]
        rows.append(attention(array, row[None], *held, scale=scale)[0])
    return torch.cat(rows)
