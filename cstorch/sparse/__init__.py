"""Sparse weights: algorithms, groups of parameters, and their configuration.

    sparsity = cstorch.sparse.RigL(sparsity=0.75, update={"freq": 100})
    model.apply(sparsity)
    optimizer.apply(sparsity)

The masks live in MemoryX, which makes them when training begins and changes them after an update.
"""

from cstorch.sparse.algorithm import SparsityAlgorithm, Static
from cstorch.sparse.configuration import configure
from cstorch.sparse.dynamic import GMP, SET, DynamicSparsityAlgorithm, RigL
from cstorch.sparse.filters import default_sparse_param_filter
from cstorch.sparse.group import Group
from cstorch.sparse.one_shot import prune_one_shot

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
    "prune_one_shot",
]
