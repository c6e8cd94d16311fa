"""Sums over dimensions, and what needs them: softmax, layer norm and RMS norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch

from csnode.engine.array import WaferArray, exp
from csnode.engine.kernels.operands import Tensor, as_tokens, check_type


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
    check_type(x)
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
    check_type(tensors[0])
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
    check_type(x)
    normal, mean, factor = array.layer_norm(as_tokens(x, shape), epsilon)
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
    dy, values = (as_tokens(t, shape).float() for t in (gradient, x))
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
    check_type(x)
    least = torch.finfo(x.dtype).eps if epsilon is None else epsilon
    normal, factor = array.rms_norm(as_tokens(x, shape), least)
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
    dy, values = (as_tokens(t, shape).float() for t in (gradient, x))
    normal = values * factor.reshape(-1, 1)
    scaled = dy if weight is None else dy * weight.float().flatten()
    share = array.feature_sum(scaled * normal) * (1 / dy.shape[1])
    dx = (scaled - normal * share[:, None]) * factor.reshape(-1, 1)
    of_weight = mask[1] and weight is not None
    return (
        dx.reshape(x.shape).to(x.dtype) if mask[0] else None,
        array.token_sum(dy * normal).reshape(*shape).to(x.dtype) if of_weight else None,
    )
