"""Aten ops on an array of PEs: layouts, masks and types around the kernels of ``array``.

Each function takes an array, then the arguments of the op. Products also take which of their two
operands are streamed weights. Results have the type and the strides that the op has in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from csnode.engine.kernels import products, sums

PRODUCTS = frozenset({"mm", "addmm", "bmm"})
"""Ops that take the numbers of the operands that stream."""

KERNELS: dict[str, Callable[..., Any]] = {
    "mm": products.mm,
    "addmm": products.addmm,
    "bmm": products.bmm,
    "sum": sums.sum_dims,
    "mean": sums.mean_dims,
    "_softmax": sums.softmax,
    "_softmax_backward_data": sums.softmax_backward,
    "_log_softmax": sums.log_softmax,
    "_log_softmax_backward_data": sums.log_softmax_backward,
    "native_layer_norm": sums.layer_norm,
    "native_layer_norm_backward": sums.layer_norm_backward,
    "_fused_rms_norm": sums.rms_norm,
    "_fused_rms_norm_backward": sums.rms_norm_backward,
    "_scaled_dot_product_flash_attention_for_cpu": products.attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": products.attention_backward,
}
"""Kernel of each aten op that the array computes."""
