"""Storages behind the nodes of a captured graph: sharing, in-place writes, and layer internals.

A storage is identified by the address of its fake tensor's storage; views share it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import fx
from torch._subclasses import FakeTensor
from torch.utils._pytree import tree_leaves

GROWS = "grows"
"""Key of a node's ``meta``: whether the storage of each of its tensors grows with the samples; only
where a step was recorded for all micro-batch sizes, which alone can tell."""

RERUN = "rerun"
"""Key of the ``meta`` of a node that the backward pass runs again."""


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """Return the fake tensors of a node's value; sparse ones have no storage, nor a kernel."""
    leaves = [v for v in tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]
    return [tensor for tensor in leaves if tensor.layout == torch.strided]


def storages_of(nodes: Iterable[fx.Node]) -> dict[int, int]:
    """Return the bytes of each distinct storage of the nodes' values, in their order."""
    storages = (tensor.untyped_storage() for node in nodes for tensor in tensors_of(node))
    return {storage._cdata: storage.nbytes() for storage in storages}


def overwritten(node: fx.Node) -> fx.Node | None:
    """Return the operand that an op overwrites with its result, if any."""
    position = getattr(node.target, "waferstream_overwrites", None)  # of a keyed random kernel
    if position is not None:
        return _node(node.args[position])
    if node.target is torch.ops.aten.native_batch_norm.default and node.args[5]:
        return _node(node.args[3])  # running_mean; the schema does not say so
    schema: Any = getattr(node.target, "_schema", None)
    return _node(node.args[0]) if schema is not None and schema.is_mutable else None


def _node(argument: object) -> fx.Node | None:
    return argument if isinstance(argument, fx.Node) else None


def internals(forward: Collection[fx.Node], backward: Collection[fx.Node]) -> set[fx.Node]:
    """Return the values that a layer's forward pass makes for its own backward pass alone.

    Args:
        forward: Ops of the forward pass of one layer.
        backward: Ops of its backward pass.

    Returns:
        The nodes of ``forward`` that ``backward`` reads and of which no other op reads any view.
    """
    own = {*forward, *backward}
    shared = storages_of(node for node in forward if not own.issuperset(node.users)).keys()
    read = {operand for node in backward for operand in node.all_input_nodes}
    return {node for node in forward if node in read and not storages_of([node]).keys() & shared}


def needed_for(wanted: Collection[fx.Node], nodes: Collection[fx.Node]) -> set[fx.Node]:
    """Return the nodes among ``nodes``, which are in order, that compute the ``wanted`` ones."""
    found = set(wanted)
    for node in reversed(list(nodes)):
        if node in found:
            found.update(operand for operand in node.all_input_nodes if operand in nodes)
    return found


def in_memory(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a plain alias of a tensor; None if it has no memory in this process."""
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(tensor, FakeTensor) or tensor.is_meta or tensor.layout != torch.strided:
            return None
        plain = tensor.detach()
        return plain if plain.numel() and plain.untyped_storage().nbytes() else None


def have_common_elements(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two plain tensors in memory have an element in common."""
    if first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr():
        return False
    if first.dtype != second.dtype:
        return True
    taken = torch.zeros(first.untyped_storage().nbytes() // first.itemsize, dtype=torch.bool)
    _place(taken, first).fill_(True)
    return bool(_place(taken, second).any())


def _place(whole: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
