"""Dataset of made-up samples, for trials without data."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset

from waferstream.core.errors import ConfigError


class SyntheticDataset(Dataset[Any]):
    """Samples of one structure.

    Args:
        sample_spec: Nested structure of tensors, which every sample repeats, and of functions
            that return the tensor of a sample, with the index as argument or without.
        num_samples: Number of samples; None for as many as are asked for.
    """

    def __init__(self, sample_spec: Any, num_samples: int | None = None) -> None:
        if num_samples is not None and num_samples < 1:
            raise ConfigError(
                "a dataset must have at least one sample",
                code="no-sample",
                where="SyntheticDataset",
                value=num_samples,
            )
        self._leaves, self._structure = pytree.tree_flatten(sample_spec)
        for leaf in self._leaves:
            if not isinstance(leaf, torch.Tensor) and not callable(leaf):
                raise ConfigError(
                    "a sample must be made of tensors and functions that return tensors",
                    code="sample-not-of-tensors",
                    where="SyntheticDataset",
                    value=type(leaf).__name__,
                )
        self._num_samples = num_samples

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError(index)
        leaves = [
            leaf if isinstance(leaf, torch.Tensor) else _call(leaf, index) for leaf in self._leaves
        ]
        return pytree.tree_unflatten(leaves, self._structure)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __len__(self) -> int:
        return sys.maxsize if self._num_samples is None else self._num_samples


def _call(function: Any, index: int) -> Any:
    try:
        takes_index = bool(inspect.signature(function).parameters)
    except ValueError:  # of a builtin
        takes_index = True
    return function(index) if takes_index else function()
