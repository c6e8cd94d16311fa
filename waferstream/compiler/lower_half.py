"""Half types that torch does not round as asked: computed in fp32, every result rounded.

That is cbfloat16, which torch does not have, and any half type with stochastic rounding. A captured
step has the half type (float16 in place of cbfloat16). Types, costs and memory follow from that
graph, so the emulated machine treats all of them alike. Only the text of the kernels differs: the
half type is replaced by fp32, and a result that was of the half type is rounded. Views are not,
since they are of rounded values, and a rounded copy would be no view.

``HalfMode`` computes the same in a plain PyTorch loop. An op runs in fp32 and, the first time, on
tensors without memory, which shows the types of its results by the rules of torch; those of the
half type are rounded.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

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

_FAKE = FakeTensorMode(
    allow_non_fake_inputs=True
)  # as in waferstream.compiler.capture: types of the CPU
_make: Any = torch.Tensor._make_wrapper_subclass


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


class HalfTensor(torch.Tensor):
    """A tensor of numbers of a half type; ``held`` has them in fp32."""

    held: torch.Tensor
    half_type: str

    @staticmethod
    def __new__(cls: type[HalfTensor], held: torch.Tensor, half: str) -> HalfTensor:
        dtype = dtype_in_program(half)
        made: HalfTensor = _make(cls, held.shape, held.stride(), held.storage_offset(), dtype=dtype)
        made.held, made.half_type = held, half
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch declares it without cls
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        operands = tree_leaves((args, kwargs))
        (half,) = {operand.half_type for operand in operands if isinstance(operand, HalfTensor)}
        return _Rounding(half).compute(func, args, kwargs or {})


class HalfMode(TorchDispatchMode):
    """The context of a step in a half type; it makes such tensors also where none was an operand.

    With a ``key``, that of a micro-batch, results are rounded by chance, else to nearest.
    """

    def __init__(self, half: str, key: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rounding = _Rounding(half, key)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._rounding.compute(func, args, kwargs or {})


def to_half(x: torch.Tensor, half: str) -> torch.Tensor:
    """Return fp32 numbers rounded to the nearest of a half type."""
    return HalfTensor(nearest(x, half), half)


class _Rounding:
    """How ops compute a half type."""

    def __init__(self, half: str, key: int | None = None) -> None:
        self._half, self._dtype, self._key = half, dtype_in_program(half), key
        self._count = 0  # results that were rounded by chance

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an op in fp32, and round those of its results that have the half type by torch."""
        leaves = tree_leaves((args, kwargs))
        half = self._dtype
        if not any(leaf is half or getattr(leaf, "dtype", None) is half for leaf in leaves):
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            raise TypeError(f"{func} writes in place, which this type does not follow")
        held_args, held_kwargs = tree_map(self._held, (args, kwargs))
        computed = func(*held_args, **held_kwargs)
        types = _result_types(func, args, kwargs)
        return tree_map(lambda value, dtype: self._result(func, value, dtype), computed, types)

    def _held(self, value: Any) -> Any:
        if isinstance(value, HalfTensor):
            return value.held
        return torch.float32 if value is self._dtype else value

    def _result(self, func: Any, computed: Any, dtype: torch.dtype | None) -> Any:
        if dtype != self._dtype:
            return computed
        if not overload_rounds(func):
            return HalfTensor(computed, self._half)
        if self._key is None or overload_states(func):
            return to_half(computed, self._half)
        self._count += 1
        rounded = stochastic(computed, self._half, self._key, self._count - 1)
        return HalfTensor(rounded, self._half)


def _result_types(func: Any, args: Any, kwargs: Any) -> Any:
    """Return the types of an op's results by the rules of torch, None where one is no tensor."""
    outlines = tree_map_only(torch.Tensor, _Outline.of, (args, kwargs))
    key = (func, repr(outlines))
    if key not in _TYPES:
        with _FAKE:
            shown_args, shown_kwargs = tree_map_only(_Outline, _Outline.shown, outlines)
            shown = func(*shown_args, **shown_kwargs)
        _TYPES[key] = tree_map(lambda result: getattr(result, "dtype", None), shown)
    return _TYPES[key]


@dataclass(frozen=True)
class _Outline:
    """What decides the types of results: an operand without its values."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Outline:
        return cls(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    def shown(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)


_TYPES: dict[tuple[Any, str], Any] = {}
"""Types of results by op and operands: the micro-batches of a run are alike."""
