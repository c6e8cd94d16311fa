"""Set the micro-batch size of a captured step whose samples are a symbol.

Numbers that follow from the samples become constants; all other nodes are copied. No op is
dispatched again, which takes torch half a millisecond for each node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import fx
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_arg
from torch.utils._pytree import tree_map_only

from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.storages import GROWS, tensors_of

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)

_SLICES: dict[Any, int] = {torch.ops.aten.slice.Tensor: 1, torch.ops.aten.slice_backward.default: 2}
"""Slices and their gradients, with the position of ``dim, start, end`` among their arguments."""


def resized(captured: Captured, shapes: ShapeEnv, size: int) -> Captured:
    """Return the step for micro-batches of ``size`` samples.

    Args:
        captured: A step whose samples are the symbol of ``shapes``.
        shapes: The environment, whose guards hold for ``size``.
        size: The samples.
    """
    tensors = _Tensors(shapes, size)
    graph = fx.Graph()
    made: dict[fx.Node, Any] = {}
    for node in captured.graph.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), made.__getitem__)
        if isinstance(node.meta.get("val"), _NUMBERS):
            made[node] = _number(node.target, args, kwargs)
            continue
        if node.target in _SLICES and _is_whole(node, tensors):
            made[node] = args[0]
            tensors.share_storage(node.meta["val"], node.all_input_nodes[0].meta["val"])
            continue
        # The name that torch gives the node of a captured step.
        packet = getattr(node.target, "overloadpacket", None)
        name = node.name if packet is None else graph._target_to_str(packet.__name__)
        new = graph.create_node(node.op, node.target, args, kwargs, name, node.type)
        new.meta = {key: value for key, value in node.meta.items() if key != "tensor_meta"}
        if "val" in node.meta:
            new.meta["val"] = tree_map_only(torch.Tensor, tensors.resized, node.meta["val"])
            new.meta[GROWS] = tuple(map(_grows, tensors_of(node)))
        made[node] = new
    inputs = tuple(replace(spec, shape=(size, *spec.shape[1:])) for spec in captured.inputs)
    return replace(captured, module=_LazyGraphModule(captured.module, graph), inputs=inputs)


def _is_whole(node: fx.Node, tensors: _Tensors) -> bool:
    """Return whether a slice takes all samples as part of an index such as ``x[:, 1:]``.

    Torch leaves it out at a known size. It keeps a slice of another dimension if it has recorded
    one, and a slice up to a computed end: that of ``x[: len(x)]`` or ``x.narrow``, no part of an
    index. A lone ``x[0:]``, which it keeps too, is recorded as the first part of ``x[:, 1:]`` is,
    and so left out.
    """
    sliced: Any = node.args[0]
    match node.args[_SLICES[node.target] :]:
        case (int(dim), _, int(), *_) if isinstance(node.meta["val"].shape[dim], torch.SymInt):
            operand, result = (tensors.resized(each.meta["val"]) for each in (sliced, node))
            return operand.shape == result.shape and operand.stride() == result.stride()
    return False


def _grows(tensor: torch.Tensor) -> bool:
    """Return whether the memory behind a tensor grows with the samples."""
    return isinstance(tensor.untyped_storage().nbytes(), torch.SymInt)


def _number(target: Any, args: Any, kwargs: Any) -> Any:
    """Return a number of the step, computed as Python does."""
    args = tree_map_only(fx.Node, lambda node: node.meta["val"], args)
    return target(*args, **kwargs)


class _Tensors:
    """The fake tensors of a step at one size; tensors that shared a storage still share one."""

    def __init__(self, shapes: ShapeEnv, size: int) -> None:
        (self._symbol,) = shapes.var_to_range
        self._size = size
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._extents: dict[sympy.Expr, int] = {}

    def resized(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor with the extents that it has at this size."""
        given, offset = tensor.untyped_storage(), tensor.storage_offset()
        extents = (given.nbytes(), offset, *tensor.shape, *tensor.stride())
        if not any(isinstance(extent, torch.SymInt) for extent in extents):
            return tensor
        shape, stride = self._all(tensor.shape), self._all(tensor.stride())
        meta = torch.empty(0, dtype=tensor.dtype, device="meta")
        meta.set_(self._storage(given), self._extent(offset), shape, stride)
        return FakeTensor(self._mode, meta, tensor.device)

    def share_storage(self, tensor: torch.Tensor, other: torch.Tensor) -> None:
        """Give a tensor, and its views, the storage of another one that takes its place."""
        storage = self.resized(other).untyped_storage()
        if storage.nbytes() == self._storage(tensor.untyped_storage()).nbytes():
            self._storages[tensor.untyped_storage()._cdata] = storage

    def _storage(self, given: torch.UntypedStorage) -> torch.UntypedStorage:
        """Return the storage at this size: the given one if it has the same bytes at any size."""
        num_bytes: int | torch.SymInt = given.nbytes()
        if not isinstance(num_bytes, torch.SymInt):
            return given
        if given._cdata not in self._storages:
            made = torch.UntypedStorage(self._extent(num_bytes), device="meta")
            self._storages[given._cdata] = made
        return self._storages[given._cdata]

    def _all(self, extents: Sequence[int | torch.SymInt]) -> list[int]:
        return [self._extent(extent) for extent in extents]

    def _extent(self, extent: int | torch.SymInt) -> int:
        """Return the value of an extent; its hint, which ``int`` returns, is that of the symbol."""
        if not isinstance(extent, torch.SymInt):
            return extent
        expression = extent.node.expr
        if expression not in self._extents:
            self._extents[expression] = int(expression.subs(self._symbol, self._size))
        return self._extents[expression]
