"""Layer norm and RMS norm, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from csnode.engine.array import WaferArray
from csnode.engine.kernels.operands import Tensor, as_tokens, check_type


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
