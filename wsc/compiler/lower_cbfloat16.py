"""Kernels of a step whose half type is cbfloat16: computed in fp32, every result rounded.

A captured step has float16 in place of cbfloat16. Types, costs and memory follow from that graph,
so the emulated machine treats cbfloat16 as any type of 16 bits. Only the text of the kernels
differs: types are replaced by fp32, and a result that was float16 is rounded. Views are not, since
they are of rounded values, and a rounded copy would be no view.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from wsc.compiler.cbfloat16 import PROXY, round_, rounded
from wsc.compiler.ops import op_kind, op_name
from wsc.compiler.storages import overwritten

_NAMES = (
    "clone cat stack repeat roll flip tril triu relu threshold_backward neg abs embedding "
    "index_select gather slice_backward select_backward zeros zeros_like new_zeros"
)
_EXACT = frozenset(_NAMES.split())
"""Ops that only choose among their operands, or give zero."""


class Cbfloat16Lowering:
    """Rewrites calls for ``wsc.core.kernel_source``."""

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a constant of the model as kernels hold it."""
        return rounded(tensor) if tensor.dtype == PROXY else tensor

    def call(self, node: fx.Node, copy: fx.Node) -> fx.Node:
        """Return the node whose value is that of ``node``.

        Args:
            node: A call of the captured graph.
            copy: Its copy, the last node of the kernel's graph so far.
        """
        copy.args = fx.node.map_aggregate(copy.args, _held)
        copy.kwargs = fx.node.map_aggregate(copy.kwargs, _held)
        if not _must_round(node):
            return copy
        in_place = overwritten(node) is not None
        return copy.graph.call_function(round_ if in_place else rounded, (copy,))


def _held(argument: Any) -> Any:
    """Return an argument with the type that kernels hold in place of float16."""
    return torch.float32 if argument == PROXY else argument


def _must_round(node: fx.Node) -> bool:
    """Return whether a call computes a float16 tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype != PROXY:
        return False
    made = node.args[0] if node.target is operator.getitem else node
    assert isinstance(made, fx.Node), "an element is taken of a node"
    return op_kind(made) != "view" and op_name(made) not in _EXACT


def lowering_of(stream_dtype: str) -> Cbfloat16Lowering | None:
    """Return how the kernels of a program are rewritten, None if they run as captured."""
    return Cbfloat16Lowering() if stream_dtype == "cbfloat16" else None
