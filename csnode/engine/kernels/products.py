"""Products: of streamed weights, of activations over tokens, of resident operands, in attention."""

from __future__ import annotations

import torch

from csnode.engine.array import WaferArray, exp, log
from csnode.engine.kernels.operands import Tensor, check_type
from waferstream.core.errors import ApplianceCompilationError

Streams = tuple[bool, bool]
"""Which of the two operands of a product are streamed weights."""


def mm(array: WaferArray, streams: Streams, left: Tensor, right: Tensor) -> Tensor:
    """Return a product: of streamed weights, or a sum over tokens where no weight streams."""
    return _product(array, streams, left, right).to(left.dtype).contiguous()


def addmm(
    array: WaferArray,
    streams: Streams,
    addend: Tensor,
    left: Tensor,
    right: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor:
    """Return ``beta * addend + alpha * left @ right``, rounded once behind the fp32 sums."""
    product = _product(array, streams, left, right)
    return (addend.float() * beta + product * alpha).to(left.dtype).contiguous()


def _product(array: WaferArray, streams: Streams, left: Tensor, right: Tensor) -> Tensor:
    """Return the fp32 product of operands of which some stream."""
    check_type(left)
    if streams[1]:
        return array.streamed_product(left, right)
    if streams[0]:
        return array.streamed_product(right.T, left.T).T
    return array.token_product(left, right)


def bmm(array: WaferArray, _streams: Streams, left: Tensor, right: Tensor) -> Tensor:
    """Return a product for each of a batch, all operands resident."""
    check_type(left)
    return array.resident_product(left, right).to(left.dtype)


def attention(
    array: WaferArray,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Return ``softmax(q k^T scale) v`` and the logarithm of each query's sum of powers."""
    check_type(q)
    if dropout:
        raise ApplianceCompilationError(
            "attention of the engine must be without dropout",
            code="engine-attention-dropout",
            value=dropout,
            remedy="set attention_dropout_rate 0, or runtime.engine.kernels: {attention: torch}",
        )
    scores = _scores(array, q, k, is_causal, attn_mask, scale)
    top = scores.amax(-1, keepdim=True)
    powers = exp(scores - top)
    total = array.feature_sum(powers.reshape(-1, powers.shape[-1])).reshape(top.shape)
    out = array.resident_product(powers * (1 / total), v.float())
    return _as_torch(out, q), _strided((log(total) + top).squeeze(-1))


def attention_backward(
    array: WaferArray,
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    log_sums: Tensor,
    _dropout: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v; the scores are computed again (Dao et al. 2022)."""
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = _scores(array, q, k, is_causal, attn_mask, scale)
    weights, dy = exp(scores - log_sums[..., None]), gradient.float()
    of_v = array.resident_product(weights.mT, dy)
    of_weights = array.resident_product(dy, v.float().mT)
    product = (dy * out.float()).reshape(-1, dy.shape[-1])
    shared = array.feature_sum(product).reshape(dy.shape[:-1])
    of_scores = weights * (of_weights - shared[..., None]) * factor
    of_q = array.resident_product(of_scores, k.float())
    of_k = array.resident_product(of_scores.mT, q.float())
    return _as_torch(of_q, q), _as_torch(of_k, k), _as_torch(of_v, v)


def _scores(
    array: WaferArray,
    q: Tensor,
    k: Tensor,
    is_causal: bool,
    mask: Tensor | None,
    scale: float | None,
) -> Tensor:
    """Return masked, scaled products of queries and keys in fp32."""
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    scores = array.resident_product(q.float() * factor, k.float().mT)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    if mask is not None:
        scores = scores + mask if mask.is_floating_point() else scores.where(mask, -torch.inf)
    return scores


def _as_torch(x: Tensor, like: Tensor) -> Tensor:
    """Return [batch, heads, tokens, size] in the type and with the strides of torch's kernel."""
    return _strided(x.to(like.dtype))


def _strided(x: Tensor) -> Tensor:
    """Return [batch, heads, tokens, ...] laid out token by token."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)
