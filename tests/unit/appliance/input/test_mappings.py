"""Mappings of any class are trees."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from appliance.input.batches import batch_leaves


class Encoding(UserDict[str, Any]):
    """As a tokenizer returns them."""


class Inner(dict[str, Any]):
    """A class derived from dict."""


NESTED: list[Callable[[dict[str, Any]], Any]] = [
    Encoding,
    Inner,
    lambda entries: (Encoding(entries), 1),
    lambda entries: Encoding({"text": "a", "inner": Inner(entries)}),
]


@pytest.mark.parametrize("nest", NESTED)
def test_tensors_of_a_mapping_are_found_and_replaced(nest: Callable[[dict[str, Any]], Any]) -> None:
    """Each class is kept, and the second batch is found to have the structure of the first."""
    first, second = (nest({"x": torch.full((2, 3), v), "y": torch.ones(2)}) for v in (1.0, 2.0))
    assert [leaf.shape for leaf in batch_leaves(first)] == [(2, 3), (2,)]
    leaves, structure = pytree.tree_flatten(first)
    assert structure == pytree.tree_flatten(second)[1]
    assert structure != pytree.tree_flatten(nest({"x": torch.ones(2), "z": torch.ones(2)}))[1]
    made = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor + 1, first)
    assert type(made) is type(first)
    assert torch.equal(batch_leaves(made)[0], batch_leaves(second)[0])
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(first)[0]]
    assert len(paths) == len(leaves)
    assert any(path.endswith("['x']") for path in paths)
