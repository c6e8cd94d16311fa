"""Aten ops on an array of PEs: layouts, masks and types around the kernels of ``array``.

Each function takes an array, then the arguments of the op. Products also take which of their two
operands are streamed weights. Results have the type and the strides that the op has in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from csnode.engine.array import WaferArray, exp, log
from wsc.core.errors import ApplianceCompilationError

Tensor = torch.Tensor
Streams = tuple[bool, bool]


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
    _check_type(left)
    if streams[1]:
        return array.streamed_product(left, right)
    if streams[0]:
        return array.streamed_product(right.T, left.T).T
    return array.token_product(left, right)


def bmm(array: WaferArray, _streams: Streams, left: Tensor, right: Tensor) -> Tensor:
    """Return a product for each of a batch, all operands resident."""
    _check_type(left)
    return array.resident_product(left, right).to(left.dtype)


def sum_dims(
    array: WaferArray,
    x: Tensor,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the sum over dimensions: features along the rows first, then tokens down columns."""
    if not x.is_floating_point():
        return torch.sum(x, list(dims) if dims else None, keepdim, dtype=dtype)
    _check_type(x)
    given = dims if dims else range(x.dim())
    over = sorted({dim % max(1, x.dim()) for dim in given}) if x.dim() else []
    total = _summed(array, x.float(), over)
    if keepdim:
        total = total.reshape([1 if d in over else n for d, n in enumerate(x.shape)])
    return total.to(dtype or x.dtype)


def _summed(array: WaferArray, x: Tensor, over: Sequence[int]) -> Tensor:
    last = x.dim() - 1
    if over and over[-1] == last:
        tokens = x.reshape(-1, x.shape[-1])
        x, over = array.feature_sum(tokens).reshape(x.shape[:-1]), over[:-1]
    if not over:
        return x
    kept = [n for d, n in enumerate(x.shape) if d not in over]
    order = [*over, *(d for d in range(x.dim()) if d not in over)]
    tokens = x.permute(order).reshape(prod(x.shape[d] for d in over), -1)
    return array.token_sum(tokens).reshape(kept)


def mean_dims(
    array: WaferArray,
    x: Tensor,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the mean over dimensions: the sum times the reciprocal of the count."""
    total = sum_dims(array, x.float(), dims, keepdim)
    return (total * (total.numel() / x.numel())).to(dtype or x.dtype)


def softmax(array: WaferArray, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return the softmax over a dimension."""
    return _over(dim, x, array.softmax).to(torch.float32 if half_to_float else x.dtype)


def log_softmax(array: WaferArray, x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Return the logarithm of the softmax over a dimension."""
    return _over(dim, x, array.log_softmax).to(torch.float32 if half_to_float else x.dtype)


def softmax_backward(
    array: WaferArray, gradient: Tensor, y: Tensor, dim: int, dtype: torch.dtype
) -> Tensor:
    """Return ``y * (dy - sum(dy * y))``."""

    def kernel(dy: Tensor, y: Tensor) -> Tensor:
        return y * (dy - array.feature_sum(dy * y)[:, None])

    return _over(dim, (gradient, y), kernel).to(dtype)


def log_softmax_backward(
    array: WaferArray, gradient: Tensor, y: Tensor, dim: int, dtype: torch.dtype
) -> Tensor:
    """Return ``dy - exp(y) * sum(dy)``."""

    def kernel(dy: Tensor, y: Tensor) -> Tensor:
        return dy - exp(y) * array.feature_sum(dy)[:, None]

    return _over(dim, (gradient, y), kernel).to(dtype)


def _over(dim: int, x: Tensor | tuple[Tensor, ...], kernel: Callable[..., Tensor]) -> Tensor:
    """Apply a kernel of [tokens, features] over a dimension of tensors."""
    tensors = x if isinstance(x, tuple) else (x,)
    _check_type(tensors[0])
    moved = [tensor.float().movedim(dim, -1) for tensor in tensors]
    shape = moved[0].shape
    result = kernel(*(each.reshape(-1, shape[-1]) for each in moved))
    return result.reshape(shape).movedim(-1, dim).contiguous()


def layer_norm(
    array: WaferArray,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the layer norm, with mean and 1 / deviation of each token."""
    _check_type(x)
    normal, mean, factor = array.layer_norm(_tokens(x, shape), epsilon)
    scale, shift = (None if w is None else w.float().flatten() for w in (weight, bias))
    if scale is not None:
        wide = normal.double() * scale + (0 if shift is None else shift)
        normal = wide.float()
    outer = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
    return normal.reshape(x.shape).to(x.dtype), mean.reshape(outer), factor.reshape(outer)


def layer_norm_backward(
    array: WaferArray,
    gradient: Tensor,
    x: Tensor,
    shape: Sequence[int],
    mean: Tensor,
    factor: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of a layer norm: two sums over features, two over tokens."""
    dy, values = (_tokens(t, shape).float() for t in (gradient, x))
    normal = (values - mean.reshape(-1, 1)) * factor.reshape(-1, 1)
    scaled = dy if weight is None else dy * weight.float().flatten()
    both = array.feature_sum(torch.stack([scaled, scaled * normal])) * (1 / dy.shape[1])
    dx = (scaled - both[0][:, None] - normal * both[1][:, None]) * factor.reshape(-1, 1)
    of_weight, of_bias = mask[1] and weight is not None, mask[2] and bias is not None
    return (
        dx.reshape(x.shape).to(x.dtype) if mask[0] else None,
        array.token_sum(dy * normal).reshape(*shape).to(x.dtype) if of_weight else None,
        array.token_sum(dy).reshape(*shape).to(x.dtype) if of_bias else None,
    )


def rms_norm(
    array: WaferArray, x: Tensor, shape: Sequence[int], weight: Tensor | None, epsilon: float | None
) -> tuple[Tensor, Tensor]:
    """Return the RMS norm, with the factor of each token."""
    _check_type(x)
    least = torch.finfo(x.dtype).eps if epsilon is None else epsilon
    normal, factor = array.rms_norm(_tokens(x, shape), least)
    if weight is not None:
        normal = normal * weight.float().flatten()
    outer = [*x.shape[: x.dim() - len(shape)], *[1] * len(shape)]
    return normal.reshape(x.shape).to(x.dtype), factor.reshape(outer)


def rms_norm_backward(
    array: WaferArray,
    gradient: Tensor,
    x: Tensor,
    shape: Sequence[int],
    factor: Tensor,
    weight: Tensor | None,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of an RMS norm."""
    dy, values = (_tokens(t, shape).float() for t in (gradient, x))
    normal = values * factor.reshape(-1, 1)
    scaled = dy if weight is None else dy * weight.float().flatten()
    share = array.feature_sum(scaled * normal) * (1 / dy.shape[1])
    dx = (scaled - normal * share[:, None]) * factor.reshape(-1, 1)
    of_weight = mask[1] and weight is not None
    return (
        dx.reshape(x.shape).to(x.dtype) if mask[0] else None,
        array.token_sum(dy * normal).reshape(*shape).to(x.dtype) if of_weight else None,
    )


def _tokens(x: Tensor, shape: Sequence[int]) -> Tensor:
    return x.reshape(-1, prod(shape))


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
    _check_type(q)
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


def _check_type(x: Tensor) -> None:
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ApplianceCompilationError(
            "operands of the engine must have 16 or 32 bits",
            code="engine-operand-type",
            value=x.dtype,
            rule="float32, float16 or bfloat16",
            remedy="remove the cast from the model, or use runtime.engine: torch",
        )


PRODUCTS = frozenset({"mm", "addmm", "bmm"})
"""Ops that are told which of their operands stream."""

KERNELS: dict[str, Callable[..., Any]] = {
    "mm": mm,
    "addmm": addmm,
    "bmm": bmm,
    "sum": sum_dims,
    "mean": mean_dims,
    "_softmax": softmax,
    "_softmax_backward_data": softmax_backward,
    "_log_softmax": log_softmax,
    "_log_softmax_backward_data": log_softmax_backward,
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
    "_fused_rms_norm": rms_norm,
    "_fused_rms_norm_backward": rms_norm_backward,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
}
"""Kernel of each aten op that the array computes."""
