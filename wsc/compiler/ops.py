"""Ops of a captured step: which have a kernel, their kind, and how much work each does.

Kinds: matmul, attention, norm, softmax, reduction, gather, random, copy, elementwise, view. An op
without a kind has no kernel: it is a compile error, not a slow path.
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from math import prod
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from wsc.compiler.storages import tensors_of
from wsc.core.program import OpWork

_NAMES_OF_KIND = {
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
KIND_OF = {name: kind for kind, names in _NAMES_OF_KIND.items() for name in names.split()}
"""Kind of each supported aten op, but for pointwise ops (elementwise) and views."""

RANDOM_OPS = frozenset(_NAMES_OF_KIND["random"].split())


def op_name(node: fx.Node) -> str:
    """Return the name of an op as in torch.ops.aten, without overload, or of a keyed kernel."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", node.target))


def op_kind(node: fx.Node) -> str | None:
    """Return the kind of a call node, or None if the op has no kernel."""
    target: Any = node.target
    if target is operator.getitem:
        return "view"
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "waferstream_kind", None)
    name = target.overloadpacket.__name__
    if _shape_depends_on_values(target, name):
        return None
    if target.is_view:
        return "view"
    return KIND_OF.get(name) or ("elementwise" if torch.Tag.pointwise in target.tags else None)


def _shape_depends_on_values(target: torch._ops.OpOverload[Any, Any], name: str) -> bool:
    # aten.index has the tag because of boolean masks, which capture refuses.
    dynamic = torch.Tag.dynamic_output_shape in target.tags and name != "index"
    return dynamic or torch.Tag.data_dependent_output in target.tags


_LOOP_OVER_OPERAND = frozenset({"reduction", "softmax", "norm"})


def work_of(node: fx.Node, weights: Collection[fx.Node] = ()) -> OpWork:
    """Return the work of one call node, from the shapes of its operands and result.

    Args:
        node: A node with its op kind in ``meta["kind"]``.
        weights: Nodes that hold streamed weights, or values derived from weights alone.
    """
    operands = [tuple(t.shape) for operand in _operands(node) for t in tensors_of(operand)]
    results = tensors_of(node)
    kind = node.meta["kind"]
    name = op_name(node)
    shape = _shape(kind, name, operands, [tuple(t.shape) for t in results])
    return OpWork(
        op=name,
        kind=kind,
        flops=_flops(kind, name, shape, sum(t.numel() for t in results)),
        shape=shape,
        streams=any(operand in weights for operand in node.all_input_nodes),
    )


def _operands(node: fx.Node) -> list[fx.Node]:
    """Return the operands in the order of the arguments, with repetitions."""
    return [leaf for leaf in tree_leaves((node.args, node.kwargs)) if isinstance(leaf, fx.Node)]


def _shape(
    kind: str, name: str, operands: list[tuple[int, ...]], results: list[tuple[int, ...]]
) -> tuple[int, ...]:
    """Return the extents that the kernel loops over; see OpWork."""
    if kind == "matmul":
        left, right = operands[-2:]  # addmm and baddbmm have their addend before them
        *batch, rows, inner = left if len(left) > 1 else (1, *left)
        return prod(batch), rows, inner, right[-1] if len(right) > 1 else 1
    if kind == "attention":
        query, key = operands[1:3] if name.endswith("backward") else operands[:2]
        *batch, queries, head_size = query
        return prod(batch), queries, key[-2], head_size
    looped = operands[:1] if kind in _LOOP_OVER_OPERAND and operands else results[:1]
    return looped[0] if looped else ()


def _flops(kind: str, name: str, shape: tuple[int, ...], results: int) -> int:
    """Return the operations: two per multiply-add, one per result element of other ops.

    Attention forward is two products of (T, T, D) per head; backward recomputes the scores and
    forms four more (Dao et al. 2022, arXiv:2205.14135, algorithm 4): 2.5 times the forward.
    """
    if kind == "matmul":
        return 2 * prod(shape)
    if kind == "attention":
        forward = 4 * prod(shape)
        return forward * 5 // 2 if name.endswith("backward") else forward
    return 0 if kind == "view" else results
