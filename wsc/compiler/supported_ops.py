"""Which aten ops have a kernel, and to which cost family each belongs.

Families: matmul, attention, norm, softmax, reduction, gather, random, copy, elementwise, view.
An op without a family has no kernel: using it is a compile error, not a slow path.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

_FAMILIES = {
    "matmul": "mm addmm bmm baddbmm matmul linear dot mv",
    "attention": "_scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "norm": "native_layer_norm native_layer_norm_backward _fused_rms_norm "
    "_fused_rms_norm_backward native_group_norm native_group_norm_backward",
    "softmax": "_softmax _safe_softmax _softmax_backward_data _log_softmax "
    "_log_softmax_backward_data logsumexp nll_loss_forward nll_loss_backward",
    "reduction": "sum mean amax amin max min argmax argmin any all prod var var_mean cumsum "
    "norm linalg_vector_norm std topk sort mse_loss",
    "gather": "embedding embedding_dense_backward index index_select gather scatter scatter_add "
    "index_put index_put_ index_add scatter_ scatter_add_ new_zeros select_backward "
    "slice_backward one_hot take_along_dim",
    "copy": "clone _to_copy cat stack copy_ contiguous repeat constant_pad_nd roll flip "
    "tril triu fill_ zero_ split_with_sizes_copy copy",
    "elementwise": "full full_like zeros zeros_like ones ones_like empty empty_like arange "
    "scalar_tensor lift_fresh_copy lift_fresh gelu_backward silu_backward threshold_backward "
    "tanh_backward sigmoid_backward where masked_fill masked_fill_ new_full new_ones new_empty "
    "eye linspace tril_indices native_dropout_backward mse_loss_backward",
    "view": "_unsafe_view unbind split chunk",
    "random": "bernoulli_ bernoulli native_dropout rand_like randn_like",
}
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names.split()}

RANDOM_OPS = frozenset(_FAMILIES["random"].split())


def op_name(node: fx.Node) -> str:
    """As in torch.ops.aten, without the overload; of one of our own kernels, its name."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", node.target))


def family(node: fx.Node) -> str | None:
    """The cost family of a call node, or None if the op has no kernel."""
    target: Any = node.target
    if target is operator.getitem:
        return "view"
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "waferstream_family", None)
    name = target.overloadpacket.__name__
    if _shape_depends_on_values(target, name):
        return None
    if target.is_view:
        return "view"
    return _FAMILY_OF.get(name) or ("elementwise" if torch.Tag.pointwise in target.tags else None)


def _shape_depends_on_values(target: torch._ops.OpOverload[Any, Any], name: str) -> bool:
    # aten.index carries the tag because of boolean masks; capture refuses those by itself.
    dynamic = torch.Tag.dynamic_output_shape in target.tags and name != "index"
    return dynamic or torch.Tag.data_dependent_output in target.tags


def in_family(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark one of our own kernels as a member of a cost family."""

    def mark(kernel: Callable[..., Any]) -> Callable[..., Any]:
        kernel.waferstream_family = name  # type: ignore[attr-defined]
        return kernel

    return mark
