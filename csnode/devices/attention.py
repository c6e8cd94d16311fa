"""Attention on another device than the processor.

Values and layouts are those of ``aten._scaled_dot_product_flash_attention_for_cpu``: scores and
probabilities are fp32, and the backward pass computes the probabilities again from the log of the
sum of each row (Dao et al. 2022, arXiv:2205.14135, appendix B.2 and B.4).

On GPUs that have it, torch's FlashAttention computes 16-bit attention without a mask; its backward
pass has a fixed order under deterministic algorithms. All else is made of products, softmax and
sums, a block of queries at a time and in order: the scores of one block alone are in memory.
Products are fp32 there, several times slower than FlashAttention.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import torch

QUERIES = 256
"""Queries of a block: 16 samples of 16 heads and 2,048 keys have 512 MiB of fp32 scores."""

_ATEN = torch.ops.aten
_HALF = (torch.bfloat16, torch.float16)
_FLASH_CAPABILITY = (8, 0)
_FLASH_MULTIPLE = 8
_FLASH_MOST = 192
"""Sizes of a head that FlashAttention takes in both directions on every GPU that has it."""


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output, and the log of the sum of each row; there is no dropout.

    Args:
        query: (batch, heads, queries, size), as ``key`` and ``value`` with keys.
        key: See ``query``.
        value: See ``query``.
        dropout_p: 0.
        is_causal: Whether a query reads no later key.
        attn_mask: Numbers that are added to the scores.
        scale: Factor of the scores; by default that of the size.
    """
    assert dropout_p == 0.0, "dropout is an op of its own"
    if _takes_flash(query, key, value, attn_mask, is_causal=is_causal):
        output, log_sums, *_ = _ATEN._scaled_dot_product_flash_attention(
            query, key, value, 0.0, is_causal, scale=scale
        )
        return _laid_out_as(query, output), log_sums
    form = _Form(attn_mask, is_causal, _factor(query, scale))
    outputs, all_log_sums = [], []
    for block in form.blocks(query, key):
        scores = form.scores(block, query, key)
        log_sums = torch.logsumexp(scores, -1)
        log_sums = log_sums.masked_fill(log_sums == -torch.inf, 0.0)  # a row that reads no key is 0
        values = block.keys(value).float()
        outputs.append((_probabilities(scores, log_sums) @ values).to(query.dtype))
        all_log_sums.append(log_sums)
    output, log_sums = torch.cat(outputs, -2), torch.cat(all_log_sums, -1)
    return _laid_out_as(query, output), _by_token(log_sums)


def attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of query, key and value."""
    assert dropout_p == 0.0, "dropout is an op of its own"
    if _takes_flash(query, key, value, attn_mask, is_causal=is_causal):
        grad_out = grad_out if grad_out.stride(-1) == 1 else grad_out.contiguous()
        operands = (grad_out, query, key, value, out, logsumexp.contiguous())
        found = _flash_backward(operands, is_causal=is_causal, scale=scale)
    else:
        form = _Form(attn_mask, is_causal, _factor(query, scale))
        found = _backward(form, grad_out, query, key, value, out, logsumexp)
    first, second, third = map(_by_token, found)
    return first, second, third


class _Block(NamedTuple):
    """Some queries, and the keys that they may read: those before ``num_keys``."""

    start: int
    stop: int
    num_keys: int

    def queries(self, of: torch.Tensor, dim: int = -2) -> torch.Tensor:
        """Return what belongs to the queries."""
        return of.narrow(dim, self.start, self.stop - self.start)

    def keys(self, of: torch.Tensor, dim: int = -2) -> torch.Tensor:
        """Return what belongs to the keys."""
        return of.narrow(dim, 0, self.num_keys)


class _Form(NamedTuple):
    """What makes the scores of queries and keys."""

    mask: torch.Tensor | None
    is_causal: bool
    factor: float

    def blocks(self, query: torch.Tensor, key: torch.Tensor) -> Iterator[_Block]:
        """Yield the blocks of queries, in order."""
        num_queries, num_keys = query.shape[-2], key.shape[-2]
        for start in range(0, num_queries, QUERIES):
            stop = min(start + QUERIES, num_queries)
            read = min(stop, num_keys) if self.is_causal else num_keys
            yield _Block(start, stop, read)

    def scores(self, block: _Block, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Return the scores of a block, minus infinity where a query must not read."""
        scores = block.queries(query).float() @ block.keys(key).float().mT * self.factor
        if self.mask is not None:
            mask = block.queries(self.mask) if self.mask.shape[-2] > 1 else self.mask
            scores = scores + (block.keys(mask, -1) if mask.shape[-1] > 1 else mask)
        if self.is_causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
            later = allowed.triu(1 + block.start)
            scores = scores.masked_fill(later, -torch.inf)
        return scores


def _backward(
    form: _Form,
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    log_sums: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Return the gradients, those of keys and values added up block by block."""
    grads_query = []
    grad_key, grad_value = (
        torch.zeros(t.shape, dtype=torch.float32, device=t.device) for t in (key, value)
    )
    for block in form.blocks(query, key):
        scores = form.scores(block, query, key)
        probabilities = _probabilities(scores, block.queries(log_sums, -1))
        grad = block.queries(grad_out).float()
        block.keys(grad_value).add_(probabilities.mT @ grad)
        # The gradient of a softmax: p * (g - sum of p * g), whose sum is that of grad_out * out.
        row_sums = (grad * block.queries(out).float()).sum(-1, keepdim=True)
        of_probabilities = grad @ block.keys(value).float().mT
        grad_scores = probabilities * (of_probabilities - row_sums) * form.factor
        grads_query.append(grad_scores @ block.keys(key).float())
        block.keys(grad_key).add_(grad_scores.mT @ block.queries(query).float())
    grad_query = torch.cat(grads_query, -2)
    return grad_query.to(query.dtype), grad_key.to(key.dtype), grad_value.to(value.dtype)


def _flash_backward(
    operands: tuple[torch.Tensor, ...], *, is_causal: bool, scale: float | None
) -> tuple[torch.Tensor, ...]:
    """Return the gradients of torch's FlashAttention, whose dropout, off, has an unread state."""
    _, query, key, *_ = operands
    state, unused = (
        torch.empty(shape, dtype=torch.uint64, device=query.device) for shape in ((2,), ())
    )
    lengths: tuple[Any, ...] = (None, None, query.shape[-2], key.shape[-2])
    found: tuple[torch.Tensor, ...] = _ATEN._scaled_dot_product_flash_attention_backward(
        *operands, *lengths, 0.0, is_causal, state, unused, scale=scale
    )
    return found


def _takes_flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    is_causal: bool,
) -> bool:
    """Return whether FlashAttention computes this, by types and shapes alone."""
    size, is_square = query.shape[-1], query.shape[-2] == key.shape[-2]
    return (
        query.device.type == "cuda"
        and mask is None
        and query.dtype in _HALF
        and query.dtype == key.dtype == value.dtype
        and query.shape[:2] == key.shape[:2]
        and key.shape == value.shape
        and query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
        and size % _FLASH_MULTIPLE == 0
        and size <= _FLASH_MOST
        and (is_square or not is_causal)  # it aligns a triangle with the last key
        and _has_flash(query.device)
    )


@cache
def _has_flash(device: torch.device) -> bool:
    is_built = torch.backends.cuda.is_flash_attention_available()
    return is_built and torch.cuda.get_device_capability(device) >= _FLASH_CAPABILITY


def _factor(query: torch.Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _probabilities(scores: torch.Tensor, log_sums: torch.Tensor) -> torch.Tensor:
    """Return the softmax of each row."""
    return (scores - log_sums.unsqueeze(-1)).exp()


def _by_token(values: torch.Tensor) -> torch.Tensor:
    """Return values with the heads of a token beside each other in memory."""
    by_token = values.transpose(1, 2)
    if by_token.is_contiguous():
        return values
    return by_token.clone(memory_format=torch.contiguous_format).transpose(1, 2)


def _laid_out_as(query: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return the output in the layout of the query, as ``torch.empty_like`` keeps it."""
    place = torch.empty_like(query)
    if output.stride() == place.stride():
        return output
    laid_out: torch.Tensor = _ATEN.copy_.default(place, output)
    return laid_out
