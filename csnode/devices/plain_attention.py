"""Attention of products, softmax and sums, for devices without torch's kernel of the processor.

Values and layouts are those of ``aten._scaled_dot_product_flash_attention_for_cpu``: scores and
probabilities are fp32, and the backward pass computes the probabilities again from the log of the
sum of each row (Dao et al. 2022, arXiv:2205.14135, appendix B.2 and B.4). Unlike that kernel it
keeps the scores of a whole micro-batch.
"""

from __future__ import annotations

import math

import torch


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
    scores = _scores(query, key, attn_mask, scale, is_causal=is_causal)
    log_sums = torch.logsumexp(scores, -1)
    log_sums = log_sums.masked_fill(log_sums == -torch.inf, 0.0)  # a row that reads no key is 0
    output = _probabilities(scores, log_sums) @ value.float()
    return _by_token(output.to(query.dtype)), _by_token(log_sums)


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
    scores = _scores(query, key, attn_mask, scale, is_causal=is_causal)
    probabilities = _probabilities(scores, logsumexp)
    grad = grad_out.float()
    grad_value = probabilities.mT @ grad
    # The gradient of a softmax: p * (g - sum of p * g), whose sum is that of grad_out * out.
    row_sums = (grad * out.float()).sum(-1, keepdim=True)
    grad_scores = probabilities * (grad @ value.float().mT - row_sums) * _factor(query, scale)
    grad_query, grad_key = grad_scores @ key.float(), grad_scores.mT @ query.float()
    pairs = ((grad_query, query), (grad_key, key), (grad_value, value))
    first, second, third = (_by_token(gradient.to(of.dtype)) for gradient, of in pairs)
    return first, second, third


def _factor(query: torch.Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float | None,
    *,
    is_causal: bool,
) -> torch.Tensor:
    scores = query.float() @ key.float().mT * _factor(query, scale)
    if mask is not None:
        scores = scores + mask
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores


def _probabilities(scores: torch.Tensor, log_sums: torch.Tensor) -> torch.Tensor:
    """Return the softmax of each row."""
    return (scores - log_sums.unsqueeze(-1)).exp()


def _by_token(values: torch.Tensor) -> torch.Tensor:
    """Return values with the heads of a token beside each other in memory."""
    by_token = values.transpose(1, 2).clone(memory_format=torch.contiguous_format)
    return by_token.transpose(1, 2)
