"""Memory of a step's constants, which are tensors of the user's program."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx


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
