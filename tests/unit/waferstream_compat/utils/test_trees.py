"""Walks over nested structures."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree

from waferstream_compat.utils.trees import recurse_spec, visit_torch_tensors


def test_tensors_are_visited_with_their_paths() -> None:
    x, y = torch.zeros(1), torch.ones(2)
    batch = {"a": [x, 3], "b": y}
    found = {".".join(path): tensor for path, tensor in visit_torch_tensors(batch, ["in"])}
    assert list(found) == ["in.a.0", "in.b"]
    assert found["in.b"] is y


def test_paths_are_in_the_order_of_the_leaves() -> None:
    leaves, spec = pytree.tree_flatten({"z": {"b": 1}, "a": [2, 3]})
    paths = [".".join(path) for path in recurse_spec(spec)]
    assert dict(zip(paths, leaves, strict=True)) == {"z.b": 1, "a.0": 2, "a.1": 3}
