"""What a node knows of sparse weights: made when an index changes, kept otherwise."""

from __future__ import annotations

import torch

from csnode.sparsity.weights import SparseWeights
from tests.support.programs.small_programs import program
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.sparsity.nonzeros import Index
from waferstream.core.sparsity.packed_weights import PackedWeights

BUCKET = plan_streams(program(), 1).weights[0]
NAME = next(spec.name for spec in BUCKET.specs if len(spec.shape) == 2)
SHAPE = next(spec.shape for spec in BUCKET.specs if spec.name == NAME)


def packed(present: int, *, has_dense_gradient: bool = False) -> PackedWeights:
    mask = torch.arange(SHAPE[0] * SHAPE[1]) < present
    dense = {NAME} if has_dense_gradient else set()
    return PackedWeights(BUCKET, {NAME: Index.of(mask)}, dense)


def test_pattern_is_kept_until_the_index_changes() -> None:
    weights, first = SparseWeights(0.5), packed(2)
    weights.note(BUCKET, first)
    pattern = weights.patterns[NAME]
    assert pattern.shape == SHAPE
    weights.note(BUCKET, first)
    assert weights.patterns[NAME] is pattern
    weights.note(BUCKET, packed(3))
    assert weights.patterns[NAME].index.num_present == 3
    assert set(weights.patterns) == set(weights.indexes) == {NAME}


def test_a_weight_that_comes_dense_is_known_no_more() -> None:
    weights = SparseWeights(0.5)
    weights.note(BUCKET, packed(2))
    weights.note(BUCKET, None)
    known = (weights.indexes, weights.gradient_indexes, weights.patterns)
    assert not any((*known, weights.gradient_patterns))


def test_dense_gradients_leave_the_weight_sparse() -> None:
    weights = SparseWeights(0.5)
    weights.note(BUCKET, packed(2, has_dense_gradient=True))
    assert set(weights.patterns) == {NAME}
    assert not any((weights.gradient_indexes, weights.gradient_patterns))
    weights.note(BUCKET, packed(2))
    assert set(weights.gradient_indexes) == set(weights.gradient_patterns) == {NAME}


def test_patterns_are_made_only_where_products_may_be_sparse() -> None:
    for weights in (SparseWeights("none"), SparseWeights(0.1), SparseWeights("auto")):
        weights.note(BUCKET, packed(SHAPE[0] * SHAPE[1] // 2))
        assert set(weights.indexes) == {NAME}
        assert not weights.patterns
