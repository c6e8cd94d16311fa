"""Batch norm in two parts: the statistics of a micro-batch, and the update of running statistics.

The op of torch does both. As the running statistics do not change its result in training, a
micro-batch computes its own mean and unbiased variance, and the update takes them in later:

    mean      fl(fl((1 - m) r) + fl(m x))       two roundings of the product sum
    variance  fl(fl((1 - m) r) + m x)           a fused multiply-add, of fp32 inputs
              as the mean                       of inputs in half precision

These are the roundings of aten.native_batch_norm on x86 with AVX2 (tested).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import fx

_NORM = torch.ops.aten.native_batch_norm.default
_BACKWARD = torch.ops.aten.native_batch_norm_backward.default
_OWN_MEAN, _OWN_VARIANCE = 3, 4  # among the outputs of the kernel below

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def native_batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, ...]:
    """Run batch norm in training.

    Returns:
        Output, saved mean and inverse deviation as the op of torch; then mean and unbiased variance
        in ``dtype``, that of the running statistics.
    """
    channels = x.shape[1]
    mean, variance = torch.zeros(2, channels, dtype=dtype).unbind()
    # With momentum 1 the running statistics become those of x, whatever they were.
    output = torch.ops.aten.native_batch_norm(x, weight, bias, mean, variance, True, 1.0, eps)
    return *output, mean, variance


native_batch_norm.waferstream_kind = "norm"  # type: ignore[attr-defined]


def _overwriting(kernel: Kernel) -> Kernel:
    """Mark a function that overwrites its first argument."""
    kernel.waferstream_overwrites = 0  # type: ignore[attr-defined]
    fx.has_side_effect(kernel)
    return kernel


@_overwriting
def update_mean(running: torch.Tensor, mean: torch.Tensor, momentum: float) -> torch.Tensor:
    """Take the mean of a micro-batch into the running mean, in place."""
    return running.mul_(1 - momentum).add_(mean * momentum)


@_overwriting
def update_variance(
    running: torch.Tensor, own: torch.Tensor, momentum: float, is_fused: bool
) -> torch.Tensor:
    """Take the unbiased variance of a micro-batch into the running variance, in place."""
    if is_fused:
        return running.mul_(1 - momentum).addcmul_(torch.full_like(own, momentum), own)
    return update_mean(running, own, momentum)


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

    with graph.inserting_before(node):
        own = [tensor.new_empty(tensor.shape) for tensor in statistics]
        norm = insert(
            native_batch_norm,
            (x, weight, bias, eps, statistics[0].dtype),
            (*node.meta["val"], *own),
        )
        mean, variance = (
            insert(operator.getitem, (norm, place), own[place - _OWN_MEAN])
            for place in (_OWN_MEAN, _OWN_VARIANCE)
        )
        insert(update_mean, (running_mean, mean, momentum), statistics[0])
        is_fused = x.meta["val"].dtype.itemsize > 2  # type: ignore[union-attr]
        insert(update_variance, (running_variance, variance, momentum, is_fused), statistics[1])
    node.replace_all_uses_with(norm)
    graph.erase_node(node)
