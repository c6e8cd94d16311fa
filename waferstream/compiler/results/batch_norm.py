"""Batch norm in two parts: the statistics of a micro-batch, and the update of running statistics.

The op of torch does both. As the running statistics do not change its result in training, a
micro-batch computes its own mean and unbiased variance, and the update takes them in later:

    mean      fl(fl(k r) + fl(m x))             two roundings of the product sum
    variance  fl(fl(k r) + m x)                 a fused multiply-add, of fp32 inputs
              as the mean                       of inputs in half precision

with k = fl(1 - m). If the input is contiguous in no memory format, both updates are computed in
fp64 and rounded once, and the variance of fp32 inputs is not rounded before. These are the
roundings of aten.native_batch_norm on x86 with AVX2 (tested).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import fx

_NORM = torch.ops.aten.native_batch_norm.default
_BACKWARD = torch.ops.aten.native_batch_norm_backward.default
_OWN_MEAN = 3  # among the outputs of the kernel below; the variance follows

Rounding = Literal["twice", "fused", "once"]

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def native_batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    dtype: torch.dtype,
    has_wide_variance: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Run batch norm in training.

    Returns:
        Output, saved mean and inverse deviation as the op of torch; then mean and unbiased variance
        in ``dtype``, that of the running statistics, or a wide variance in fp64.
    """
    channels = x.shape[1]
    mean, variance = torch.zeros(2, channels, dtype=dtype).unbind()
    # With momentum 1 the running statistics become those of x, whatever they were.
    output = torch.ops.aten.native_batch_norm(x, weight, bias, mean, variance, True, 1.0, eps)
    if has_wide_variance:
        wide = x.transpose(0, 1).flatten(1).double()
        variance = (wide - mean.double()[:, None]).square().sum(1) / (wide.shape[1] - 1)
    return *output, mean, variance


native_batch_norm.waferstream_kind = "norm"  # type: ignore[attr-defined]


def _overwriting(kernel: Kernel) -> Kernel:
    """Mark a function that overwrites its first argument."""
    kernel.waferstream_overwrites = 0  # type: ignore[attr-defined]
    fx.has_side_effect(kernel)
    return kernel


@_overwriting
def update_running(
    running: torch.Tensor, own: torch.Tensor, momentum: float, rounding: Rounding
) -> torch.Tensor:
    """Take a statistic of a micro-batch into the running one, in place."""
    if rounding == "once":
        return running.copy_((1 - momentum) * running.double() + momentum * own.double())
    kept = running.mul_(float(np.float32(1) - np.float32(momentum)))
    if rounding == "fused":
        return kept.addcmul_(torch.full_like(own, momentum), own)
    return kept.add_(own * momentum)


def split_batch_norms(graph: fx.Graph) -> None:
    """Split every batch norm in training that has running statistics."""
    for node in list(graph.nodes):
        if node.target is _NORM and node.args[5] and node.args[3] is not None:
            _split(graph, node)
        elif node.target is _BACKWARD and node.args[7]:
            node.args = (*node.args[:3], None, None, *node.args[5:])  # read in evaluation only


def _split(graph: fx.Graph, node: fx.Node) -> None:
    x, weight, bias, running_mean, running_variance, _, momentum, eps = node.args
    statistics = [running_mean.meta["val"], running_variance.meta["val"]]  # type: ignore[union-attr]

    def insert(target: Callable[..., Any], args: tuple[Any, ...], value: Any) -> fx.Node:
        new = graph.call_function(target, args)
        new.meta = {**node.meta, "val": value}
        return new

    image: torch.Tensor = x.meta["val"]  # type: ignore[union-attr]
    is_half, is_dense = image.dtype.itemsize <= 2, _is_dense(image)
    roundings: tuple[Rounding, Rounding] = ("twice", "twice" if is_half else "fused")
    if not is_dense:
        roundings = ("once", "once")
    is_wide = not is_dense and not is_half
    with graph.inserting_before(node):
        own = [tensor.new_empty(tensor.shape) for tensor in statistics]
        if is_wide:
            own[1] = own[1].double()
        norm = insert(
            native_batch_norm,
            (x, weight, bias, eps, statistics[0].dtype, is_wide),
            (*node.meta["val"], *own),
        )
        for place, running in enumerate((running_mean, running_variance)):
            part = insert(operator.getitem, (norm, _OWN_MEAN + place), own[place])
            insert(update_running, (running, part, momentum, roundings[place]), statistics[place])
    node.replace_all_uses_with(norm)
    graph.erase_node(node)


def _is_dense(x: torch.Tensor) -> bool:
    """Return whether an input is contiguous in either memory format."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    other = formats.get(x.ndim, torch.contiguous_format)
    return x.is_contiguous() or x.is_contiguous(memory_format=other)
