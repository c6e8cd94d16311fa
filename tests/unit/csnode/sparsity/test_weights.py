"""What a node knows of sparse weights: made when an index changes, kept otherwise."""

from __future__ import annotations

import pytest
import torch

from csnode.sparsity.crossover import SparseProducts
from csnode.sparsity.products import Pattern, times
from csnode.sparsity.weights import NonZeros, PackedWeight, SparseWeights
from tests.support.programs.small_programs import program
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.sparsity.nonzeros import Index
from waferstream.core.sparsity.packed_weights import PackedWeights

BUCKET = plan_streams(program(), 1).weights[0]
NAME = next(spec.name for spec in BUCKET.specs if len(spec.shape) == 2)
SHAPE = next(spec.shape for spec in BUCKET.specs if spec.name == NAME)

aten = torch.ops.aten
OUTPUTS, INPUTS, ROWS = 12, 20, 3
MASK = torch.rand(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(0)) < 0.25
WHOLE = torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(1)) * MASK
X = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(2))
SLOPE = torch.randn(ROWS, OUTPUTS, generator=torch.Generator().manual_seed(3))


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


def packed_of_packed_weight(
    setting: SparseProducts = 0.5, dtype: torch.dtype = torch.float32
) -> PackedWeight:
    pattern = Pattern(Index.of(MASK), (OUTPUTS, INPUTS))
    return PackedWeight(NonZeros(WHOLE[MASK].to(dtype), pattern), setting)


@pytest.fixture
def no_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a weight is written with its zeros."""
    monkeypatch.setattr(Index, "unpack", None)


@pytest.mark.usefixtures("no_zeros")
def test_products_with_the_weight_read_its_non_zeros_alone() -> None:
    weight = packed_of_packed_weight()
    rows = weight.non_zeros.rows
    assert torch.equal(aten.mm(X, aten.t(weight)), times(X, rows))
    twice = aten.t(aten.t(weight))
    assert torch.equal(aten.mm(SLOPE, twice), times(SLOPE, weight.non_zeros.columns))
    bias = SLOPE[0]
    assert torch.equal(aten.addmm(bias, X, aten.t(weight)), times(X, rows) + bias)


@pytest.mark.usefixtures("no_zeros")
def test_16_bits_are_rounded_once_behind_the_sum() -> None:
    weight, x, bias = (
        packed_of_packed_weight(dtype=torch.bfloat16),
        X.bfloat16(),
        SLOPE[0].bfloat16(),
    )
    product = times(x, weight.non_zeros.rows)
    assert torch.equal(aten.mm(x, aten.t(weight)), product.bfloat16())
    found = aten.addmm(bias, x, aten.t(weight))
    assert torch.equal(found, (product + bias.float()).bfloat16())


@pytest.mark.usefixtures("no_zeros")
def test_a_cast_weight_stays_packed() -> None:
    cast = aten._to_copy(packed_of_packed_weight(dtype=torch.bfloat16), dtype=torch.float32)
    assert isinstance(cast, PackedWeight)
    assert aten.mm(X, aten.t(cast)).dtype == torch.float32


@pytest.mark.parametrize("setting", [0.1, "auto", "none"])
def test_denser_weights_have_the_bits_of_the_dense_kernel(setting: SparseProducts) -> None:
    weight = packed_of_packed_weight(setting)
    assert torch.equal(aten.mm(X, aten.t(weight)), X @ WHOLE.t())
    assert torch.equal(aten.addmm(SLOPE[0], X, aten.t(weight)), aten.addmm(SLOPE[0], X, WHOLE.t()))


def test_all_other_ops_see_the_zeros() -> None:
    weight = packed_of_packed_weight()
    assert weight.shape == WHOLE.shape
    assert aten.t(weight).shape == WHOLE.t().shape
    assert torch.equal(aten.mul(weight, weight), WHOLE * WHOLE)
    assert torch.equal(aten.sum(aten.t(weight)), WHOLE.t().sum())
    assert torch.equal(aten.mm(weight, X.t()), WHOLE @ X.t())
    assert torch.equal(aten.mm(aten.t(weight), weight), WHOLE.t() @ WHOLE)
    halved = aten.addmm(SLOPE[0], X, aten.t(weight), alpha=0.5)
    assert torch.equal(halved, aten.addmm(SLOPE[0], X, WHOLE.t(), alpha=0.5))
    in_memory_format = aten.clone(weight, memory_format=torch.contiguous_format)
    assert type(in_memory_format) is torch.Tensor
