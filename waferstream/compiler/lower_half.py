"""Kernels whose half type torch does not round as asked: computed in fp32, every result rounded.

That is cbfloat16, which torch does not have, and any half type with stochastic rounding. A captured
step has the half type (float16 in place of cbfloat16). Types, costs and memory follow from that
graph, so the emulated machine treats all of them alike. Only the text of the kernels differs: the
half type is replaced by fp32, and a result that was of the half type is rounded. Views are not,
since they are of rounded values, and a rounded copy would be no view.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.ops import kind_of_overload, op_kind, op_name
from waferstream.compiler.storages import overwritten
from waferstream.numerics.half_types import nearest, nearest_, stochastic, stochastic_
from waferstream.numerics.keyed_random import KEY_INPUT
from waferstream.numerics.precision import dtype_in_program

_CHOOSING = (
    "clone cat stack repeat roll flip tril triu relu threshold_backward neg abs embedding "
    "index_select gather slice_backward select_backward zeros zeros_like new_zeros"
)
_EXACT = frozenset(_CHOOSING.split())
"""Ops that only choose among their operands, or give zero."""

_STATING = "full full_like new_full fill_ scalar_tensor arange linspace logspace"
_STATED = frozenset(_STATING.split())
"""Ops that state numbers of the program instead of computing: these are rounded to nearest."""

PLACE = "rounding_place"
"""The entry of a node's ``meta`` with its place among the ops that round by chance."""


class HalfLowering:
    """Rewrites calls for ``waferstream.core.program.kernel_source``."""

    def __init__(self, half: str) -> None:
        self._half, self._dtype = half, dtype_in_program(half)

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a constant of the model as kernels hold it."""
        return nearest(tensor, self._half) if tensor.dtype == self._dtype else tensor

    def call(self, node: fx.Node, copy: fx.Node) -> fx.Node:
        """Return the node whose value is that of ``node``.

        Args:
            node: A call of the captured graph.
            copy: Its copy, the last node of the kernel's graph so far.
        """
        copy.args = fx.node.map_aggregate(copy.args, self._held)
        copy.kwargs = fx.node.map_aggregate(copy.kwargs, self._held)
        if not rounds(node, self._dtype):
            return copy
        graph, in_place = copy.graph, overwritten(node) is not None
        if PLACE not in node.meta:
            return graph.call_function(nearest_ if in_place else nearest, (copy, self._half))
        (key,) = graph.find_nodes(op="placeholder", target=KEY_INPUT)
        arguments = (copy, self._half, key, node.meta[PLACE])
        return graph.call_function(stochastic_ if in_place else stochastic, arguments)

    def result(self, node: fx.Node, copy: fx.Node) -> fx.Node:
        """Return a result of the step in torch's type, if it has the half type and torch has it."""
        if self._half == "cbfloat16" or node.meta["val"].dtype != self._dtype:
            return copy
        cast = torch.ops.aten._to_copy.default
        return copy.graph.call_function(cast, (copy,), {"dtype": self._dtype})

    def _held(self, argument: Any) -> Any:
        """Return an argument with the type that kernels hold in place of the half type."""
        return torch.float32 if argument == self._dtype else argument


def rounds(node: fx.Node, dtype: torch.dtype) -> bool:
    """Return whether a node computes a tensor of a half type."""
    value = node.meta.get("val")
    is_half = isinstance(value, torch.Tensor) and value.dtype == dtype
    if node.op != "call_function" or not is_half:
        return False
    made = made_by(node)
    return op_kind(made) != "view" and op_name(made) not in _EXACT


def rounds_by_chance(node: fx.Node, dtype: torch.dtype) -> bool:
    """Return whether stochastic rounding, where it is on, draws for a call."""
    return rounds(node, dtype) and op_name(made_by(node)) not in _STATED


def overload_rounds(overload: Any) -> bool:
    """Return whether an op computes what it returns, as in ``rounds``."""
    return kind_of_overload(overload) != "view" and _name(overload) not in _EXACT


def overload_states(overload: Any) -> bool:
    """Return whether an op states numbers of the program."""
    return _name(overload) in _STATED


def _name(overload: Any) -> str:
    return str(overload.overloadpacket.__name__)


def made_by(node: fx.Node) -> fx.Node:
    """Return the op that made a value, which may be one of several results."""
    made = node.args[0] if node.target is operator.getitem else node
    assert isinstance(made, fx.Node), "an element is taken of a node"
    return made


def lowering_of(captured: Captured) -> HalfLowering | None:
    """Return how the kernels of a step are rewritten, None if they run as captured."""
    held = captured.stream_dtype == "cbfloat16" or captured.rounding == "stochastic"
    return HalfLowering(captured.stream_dtype) if held else None
