"""Sparsity: its algorithms can be named in type hints, and are refused when made."""

from __future__ import annotations

from typing import Any

from cstorch.client.filters import default_sparse_param_filter
from cstorch.client.refused import refused

__all__ = [
    "GMP",
    "SET",
    "DynamicSparsityAlgorithm",
    "Group",
    "RigL",
    "SparsityAlgorithm",
    "Static",
    "configure",
    "default_sparse_param_filter",
]

_REMEDY = "leave the section `sparsity` out and train dense weights"


class SparsityAlgorithm(refused("cerebras.pytorch.sparse.SparsityAlgorithm", _REMEDY)):  # type: ignore[misc]
    """Base class of all algorithms."""


class Static(SparsityAlgorithm):
    """A fixed mask."""

    def __init__(self, sparsity: Any = None, **options: Any) -> None:
        """Declare the arguments; no object is ever made."""


class DynamicSparsityAlgorithm(SparsityAlgorithm):
    """A mask that changes during training."""

    def __init__(self, sparsity: Any = None, update: Any = None, **options: Any) -> None:
        """Declare the arguments; no object is ever made."""


class GMP(DynamicSparsityAlgorithm):
    """Gradual magnitude pruning."""


class SET(DynamicSparsityAlgorithm):
    """Sparse evolutionary training."""


class RigL(DynamicSparsityAlgorithm):
    """Rigged lottery."""


class Group(SparsityAlgorithm):
    """Algorithms for groups of parameters."""


configure = refused("cerebras.pytorch.sparse.configure", _REMEDY)
