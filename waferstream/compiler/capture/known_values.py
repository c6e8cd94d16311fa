"""Constants of a traced step, and values that follow from them and are known while it is traced.

A traced tensor has no value, so ``x.item()``, ``if x.max() > 4`` and ``y[x > 4]`` fail. Where ``x``
follows from constants, as positions made by ``torch.arange`` do, its value is the same in every
step. Then the ops recorded for ``x`` run at once, on values, and the trace goes on with the result.
Buffers of the model do not count as constants, because a step may write to them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from waferstream.compiler.ops import op_kind
from waferstream.compiler.storages import needed_for, overwritten, storages_of

_aten = torch.ops.aten
_INDEXED = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default}


class KnownValues(TorchDispatchMode):
    """A mode that runs ops that need the values of tensors, where constants alone decide them."""

    def __init__(self, buffers: Collection[torch.Tensor]) -> None:
        TorchDispatchMode.__init__(self)
        self._buffers = tuple(buffers)

    def __torch_dispatch__(
        self, op: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if op in _INDEXED:
            args = (args[0], list(self._integers(args[1])), *args[2:])
        elif {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(op.tags):
            tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
            values = {tensor: self._value(tensor) for tensor in tensors}
            if values and None not in values.values():
                with _disable_current_modes(), torch.no_grad():
                    return op(*tree_map_only(torch.Tensor, values.get, args), **options)
        return op(*args, **options)

    def _integers(self, indices: Sequence[Any]) -> Iterator[Any]:
        """Yield the indices of an op, with the places where a known mask is true in its stead."""
        for index in indices:
            is_mask = isinstance(index, torch.Tensor) and index.dtype == torch.bool
            mask = self._value(index) if is_mask else None
            if mask is None:
                yield index
            else:
                with _disable_current_modes():
                    yield from mask.nonzero().unbind(1)

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the value of a traced tensor, None if constants alone do not decide it."""
        mode = get_proxy_mode()
        slot: Any = None if mode is None else get_proxy_slot(tensor, mode.tracer, None)
        return None if mode is None or slot is None else self._run(slot.proxy.node, mode.tracer)

    def _run(self, wanted: fx.Node, tracer: Any) -> torch.Tensor | None:
        """Run the ops that compute a node, None if they read more than constants."""
        values: dict[fx.Node, Any] = {}  # of tensors from outside, then of all
        constant: dict[fx.Node, None] = {}
        foreign: list[fx.Node] = []  # overwritten with what is not constant
        for node in tracer.graph.nodes:
            if node.op == "get_attr":
                values[node] = getattr(tracer.root, str(node.target))
            elif node.op == "call_function" and self._is_constant(node, values, constant):
                constant[node] = None
            elif (written := overwritten(node)) is not None:
                foreign.append(written)
        writes = [node for node in constant if overwritten(node) is not None]
        needed = needed_for([wanted, *writes], constant)
        if wanted not in constant or storages_of(needed).keys() & storages_of(foreign).keys():
            return None
        with _disable_current_modes(), torch.no_grad():
            for node in (node for node in constant if node in needed):
                args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
                target: Any = node.target
                values[node] = target(*args, **kwargs)
        found: torch.Tensor = values[wanted]
        return found

    def _is_constant(
        self, node: fx.Node, values: Mapping[fx.Node, Any], constant: Mapping[fx.Node, None]
    ) -> bool:
        """Return whether an op reads constants alone, draws nothing and writes to no value."""
        operands = node.all_input_nodes
        known = all(operand in constant or operand in values for operand in operands)
        if not known or op_kind(node) in {"random", None} or overwritten(node) in values:
            return False
        read = [values[operand] for operand in operands if operand in values]
        return not any(value is buffer for value in read for buffer in self._buffers)


def own_constants(module: fx.GraphModule, are_copied: Callable[[torch.Tensor], bool]) -> None:
    """Copy the memory of constants, since the user's program may write to its tensors."""
    copies: dict[int, torch.UntypedStorage] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        constant = getattr(module, str(node.target))
        if isinstance(constant, torch.Tensor) and are_copied(constant):
            with torch.no_grad():
                setattr(module, str(node.target), _copy(constant, copies))


def _copy(constant: torch.Tensor, copies: dict[int, torch.UntypedStorage]) -> torch.Tensor:
    """Return a tensor of the same form in a copied storage, which ``copies`` has by address."""
    storage = constant.untyped_storage()
    if storage._cdata not in copies:
        copies[storage._cdata] = storage.clone()
    place = (constant.storage_offset(), constant.shape, constant.stride())
    return torch.empty(0, dtype=constant.dtype).set_(copies[storage._cdata], *place)
