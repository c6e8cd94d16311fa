"""Shape rules of ops where torch's own rule describes other kernels than those that run here.

``torch._grouped_mm`` multiplies groups of rows or columns, as mixtures of experts need. Its kernel
for CPUs takes every float type, while torch's rule for fake tensors takes bfloat16 only. Sizes,
strides and the rule about alignment below are those of the kernel (ATen/native/GroupedMMUtils.h).

Norms write their result in the layout of their input if that is dense in a format of torch, else
contiguously; torch's rules take over any order of dimensions. Gradients of losses are contiguous
whatever the layout of the prediction is, and the kernels of other functions look at the gradient's
layout first, where torch's rules look at the input's. A view of the result, which is possible in
one layout and not in the other, would fail while the step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import torch
from torch._decomp import decomposition_table as rules
from torch._prims_common import suggest_memory_format
from torch._subclasses import fake_impls

from waferstream.compiler.capture.capture_errors import calling_line
from waferstream.core.errors import ApplianceCompilationError

_aten = torch.ops.aten
_ALIGNMENT_BYTES = 16
"""Alignment of the rows of a grouped product, which ``torch._grouped_mm`` requires."""

_INPUT_OF_NORM = {
    _aten.native_batch_norm.default: 0,
    _aten.native_batch_norm_backward.default: 1,
    _aten.native_layer_norm_backward.default: 1,
    _aten.native_group_norm_backward.default: 1,
}
"""Position of the input among the arguments of a norm."""

_CONTIGUOUS = (
    _aten.mse_loss_backward.default,
    _aten.smooth_l1_loss_backward.default,
    _aten.huber_loss_backward.default,
)
"""Ops whose kernels write their result contiguously (ATen/native/Loss.cpp)."""

_LIKE_A_SUM = (
    _aten.softplus_backward.default,
    _aten.elu_backward.default,
    _aten.hardswish_backward.default,
    _aten.hardsigmoid_backward.default,
    _aten.hardtanh_backward.default,
)
"""Ops of a gradient and an input whose kernels lay their result out as that of a sum of both."""


@contextmanager
def own_shape_rules() -> Iterator[None]:
    """Let fake tensors follow the rules of this module."""
    products: Any = {_aten._grouped_mm.default: _grouped_mm}
    norms: Any = {op: _norm(rules[op], position) for op, position in _INPUT_OF_NORM.items()}
    gradients: Any = {op: _contiguous(rules[op]) for op in _CONTIGUOUS}
    gradients |= {op: _like_a_sum(rules[op]) for op in _LIKE_A_SUM}
    with (
        mock.patch.dict(fake_impls.op_implementations_dict, products),
        mock.patch.dict(rules, norms | gradients),
    ):
        yield


def _contiguous(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return torch's rule with a contiguous result."""

    @wraps(rule)
    def follow(*args: Any, **kwargs: Any) -> Any:
        return rule(*args, **kwargs).contiguous()

    return follow


def _like_a_sum(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule whose result has the shape, type and strides of the sum of both tensors."""

    @wraps(rule)
    def follow(*args: Any, **_kwargs: Any) -> Any:
        gradient, x = (arg for arg in args if isinstance(arg, torch.Tensor))
        return gradient + x

    return follow


def _norm(rule: Callable[..., Any], input_position: int) -> Callable[..., Any]:
    """Return torch's rule of a norm, applied to operands in the layout of the result."""

    @wraps(rule)  # torch calls rules of its own module alone
    def follow(*args: Any, **kwargs: Any) -> Any:
        x = args[input_position]
        layout = suggest_memory_format(x)
        if not x.is_contiguous(memory_format=layout):
            layout = torch.contiguous_format

        def laid_out(arg: Any) -> Any:
            # Without the ranks, a number of samples would be compared with one of channels.
            is_tensor = isinstance(arg, torch.Tensor) and arg.ndim == x.ndim
            is_like_input = is_tensor and arg.shape == x.shape
            return arg.contiguous(memory_format=layout) if is_like_input else arg

        return rule(*map(laid_out, args), **kwargs)

    return follow


def _grouped_mm(
    fake_mode: Any,
    _op: object,
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    _bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return the result of a grouped product; its rows are padded to whole alignments."""
    _check_alignment(left)
    _check_alignment(right)
    shape = [*_rows(left, right, offs), right.shape[-1]]
    dtype = out_dtype or left.dtype
    width = _aligned(shape[-1], dtype.itemsize)
    strides = [width, 1] if len(shape) == 2 else [shape[1] * width, width, 1]
    with fake_mode:
        return torch.empty_strided(shape, strides, dtype=dtype)


def _rows(left: torch.Tensor, right: torch.Tensor, offs: torch.Tensor | None) -> list[int]:
    """Return the extents of the result before its last one."""
    if left.dim() == right.dim() == 2:
        assert offs is not None, "a grouped product of two matrices must have offsets"
        return [offs.shape[0], left.shape[0]]
    return [*left.shape[:-1]] if right.dim() == 3 else [left.shape[1]]


def _check_alignment(operand: torch.Tensor) -> None:
    """Raise ApplianceCompilationError for rows that do not start at whole alignments."""
    stride = max(operand.stride()[-2:])
    if stride == _aligned(stride, operand.element_size()):
        return
    raise ApplianceCompilationError(
        f"the rows of a grouped product must start at multiples of {_ALIGNMENT_BYTES} bytes",
        code="grouped-product-unaligned",
        where=calling_line(),
        value=f"shape {tuple(operand.shape)} of {operand.dtype}",
        remedy="make the widths of the experts multiples of 8",
    )


def _aligned(elements: int, element_bytes: int) -> int:
    """Return the least number of elements, of those given or more, that fills alignments."""
    step = max(1, _ALIGNMENT_BYTES // element_bytes)
    return -(-elements // step) * step
