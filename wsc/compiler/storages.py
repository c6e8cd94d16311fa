"""The memory behind the nodes of a captured graph: which of them share it, which op writes to it.

A storage is told by its address among the fake tensors of the capture; views share it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from wsc.compiler import keyed_random


def tensors_of(node: fx.Node) -> list[torch.Tensor]:
    """The (fake) tensors that a node stands for."""
    return [v for v in tree_leaves(node.meta.get("val")) if isinstance(v, torch.Tensor)]


def storages_of(nodes: Iterable[fx.Node]) -> dict[int, int]:
    """Bytes of each distinct storage behind the values of nodes, in their order."""
    storages = (tensor.untyped_storage() for node in nodes for tensor in tensors_of(node))
    return {storage._cdata: storage.nbytes() for storage in storages}


def overwritten(node: fx.Node) -> fx.Node | None:
    """The operand that an op writes its result over, if any."""
    if node.target is keyed_random.bernoulli_:
        return _node(node.args[2])  # after key and position
    schema: Any = getattr(node.target, "_schema", None)
    return _node(node.args[0]) if schema is not None and schema.is_mutable else None


def _node(argument: object) -> fx.Node | None:
    return argument if isinstance(argument, fx.Node) else None
