"""Names of an earlier torch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch.utils import _pytree as pytree

from cstorch.client import torch_release


def test_structures_of_pytrees_can_be_replaced() -> None:
    leaves, spec = pytree.tree_flatten((1, [2]))
    torch_release.adapt()
    try:
        other = replace(spec, type=list, children_specs=spec.children())  # type: ignore[call-arg]
    finally:
        torch_release.restore()
    assert pytree.tree_unflatten(leaves, other) == [1, [2]]
    with pytest.raises(TypeError):
        replace(spec, type=list)
