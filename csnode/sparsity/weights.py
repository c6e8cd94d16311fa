"""What a node knows of a program's sparse weights: indexes and patterns, as they came last."""

from __future__ import annotations

from typing import TypeVar

from csnode.sparsity.crossover import SparseProducts, highest_density
from csnode.sparsity.products import Pattern
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.sparsity.nonzeros import Index
from waferstream.core.sparsity.packed_weights import PackedWeights

Known = TypeVar("Known")


class SparseWeights:
    """Indexes by weight, and patterns of those whose products may be sparse.

    A pattern is made when an index comes that differs from the last one; the old one is dropped.
    ``gradient_indexes`` and ``gradient_patterns`` lack weights whose gradient is dense in a step.
    """

    def __init__(self, setting: SparseProducts) -> None:
        self._setting = setting
        self.indexes: dict[str, Index] = {}
        self.gradient_indexes: dict[str, Index] = {}
        self.patterns: dict[str, Pattern] = {}
        self.gradient_patterns: dict[str, Pattern] = {}

    def note(self, bucket: Bucket, packed: PackedWeights | None) -> None:
        """Note what has come with a bucket; ``packed`` is None if all of its weights are dense."""
        indexes = {} if packed is None else packed.indexes
        sparse_gradients = {} if packed is None else packed.gradient_indexes
        for spec in bucket.specs:
            name = spec.name
            pattern = self._pattern(spec, indexes.get(name))
            _replace(self.indexes, name, indexes.get(name))
            _replace(self.gradient_indexes, name, sparse_gradients.get(name))
            _replace(self.patterns, name, pattern)
            is_sparse = name in sparse_gradients
            _replace(self.gradient_patterns, name, pattern if is_sparse else None)

    def _pattern(self, spec: TensorSpec, index: Index | None) -> Pattern | None:
        if index is None or len(spec.shape) != 2:
            return None
        known = self.patterns.get(spec.name)
        if known is not None and known.index is index:
            return known
        pattern = Pattern(index, (spec.shape[0], spec.shape[1]))
        return pattern if pattern.density <= highest_density(self._setting) else None


def _replace(known: dict[str, Known], name: str, new: Known | None) -> None:
    """Keep what is new of a weight; None is nothing."""
    if new is None:
        known.pop(name, None)
    else:
        known[name] = new
