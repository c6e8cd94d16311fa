"""Mappings of other classes than dict as batches, such as the encodings of tokenizers.

torch's trees know ``dict`` and its relatives in the standard library. Any other mapping would be
one leaf, and its tensors would not be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils import _pytree as pytree


def register_mappings(batch: object) -> None:
    """Let torch's trees reach into the mappings of a batch, whatever their classes are.

    Such a class is made from a dict.
    """
    while mappings := [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Mapping)]:
        for each in {type(mapping) for mapping in mappings}:
            _register(each)


def _register(mapping: type[Any]) -> None:
    """Make a class a node of trees: its values, and its keys as what must not change."""

    def flatten(value: Mapping[Any, Any]) -> tuple[list[Any], list[Any]]:
        return list(value.values()), list(value)

    def with_keys(value: Mapping[Any, Any]) -> tuple[list[tuple[Any, Any]], list[Any]]:
        return [(pytree.MappingKey(key), each) for key, each in value.items()], list(value)

    def unflatten(values: Any, keys: list[Any]) -> Any:
        return mapping(dict(zip(keys, values, strict=True)))

    pytree.register_pytree_node(mapping, flatten, unflatten, flatten_with_keys_fn=with_keys)
