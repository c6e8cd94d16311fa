"""Walks over nested structures of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree


def visit_torch_tensors(
    structure: Any, scope: Sequence[str] | None = None
) -> Iterator[tuple[list[str], torch.Tensor]]:
    """Yield the path, below ``scope``, and the value of every tensor in a nested structure."""
    for path, leaf in pytree.tree_flatten_with_path(structure)[0]:
        if isinstance(leaf, torch.Tensor):
            yield [*(scope or ()), *map(_step_name, path)], leaf


def recurse_spec(spec: pytree.TreeSpec, scope: Sequence[str] | None = None) -> Iterator[list[str]]:
    """Yield the path, below ``scope``, of every leaf of a structure in the order of its leaves."""
    places = pytree.tree_unflatten(range(spec.num_leaves), spec)
    for path, _ in pytree.tree_flatten_with_path(places)[0]:
        yield [*(scope or ()), *map(_step_name, path)]


def _step_name(key: Any) -> str:
    """Return the key, index or attribute name of one step of a path."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
