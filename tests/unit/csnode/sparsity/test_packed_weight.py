"""A packed weight in a kernel: non-zeros for its products, whole for all other ops."""

from __future__ import annotations

import pytest
import torch

from csnode.sparsity.crossover import SparseProducts
from csnode.sparsity.packed_weight import NonZeros, PackedWeight
from csnode.sparsity.products import Pattern, times
from waferstream.core.sparsity.nonzeros import Index

aten = torch.ops.aten
OUTPUTS, INPUTS, ROWS = 12, 20, 3
MASK = torch.rand(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(0)) < 0.25
WHOLE = torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(1)) * MASK
X = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(2))
SLOPE = torch.randn(ROWS, OUTPUTS, generator=torch.Generator().manual_seed(3))


def packed(setting: SparseProducts = 0.5, dtype: torch.dtype = torch.float32) -> PackedWeight:
    pattern = Pattern(Index.of(MASK), (OUTPUTS, INPUTS))
    return PackedWeight(NonZeros(WHOLE[MASK].to(dtype), pattern), setting)


@pytest.fixture
def no_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a weight is written with its zeros."""
    monkeypatch.setattr(Index, "unpack", None)


@pytest.mark.usefixtures("no_zeros")
def test_products_with_the_weight_read_its_non_zeros_alone() -> None:
    weight = packed()
    rows = weight.non_zeros.rows
    assert torch.equal(aten.mm(X, aten.t(weight)), times(X, rows))
    twice = aten.t(aten.t(weight))
    assert torch.equal(aten.mm(SLOPE, twice), times(SLOPE, weight.non_zeros.columns))
    bias = SLOPE[0]
    assert torch.equal(aten.addmm(bias, X, aten.t(weight)), times(X, rows) + bias)


@pytest.mark.usefixtures("no_zeros")
def test_16_bits_are_rounded_once_behind_the_sum() -> None:
    weight, x, bias = packed(dtype=torch.bfloat16), X.bfloat16(), SLOPE[0].bfloat16()
    product = times(x, weight.non_zeros.rows)
    assert torch.equal(aten.mm(x, aten.t(weight)), product.bfloat16())
    found = aten.addmm(bias, x, aten.t(weight))
    assert torch.equal(found, (product + bias.float()).bfloat16())


@pytest.mark.usefixtures("no_zeros")
def test_a_cast_weight_stays_packed() -> None:
    cast = aten._to_copy(packed(dtype=torch.bfloat16), dtype=torch.float32)
    assert isinstance(cast, PackedWeight)
    assert aten.mm(X, aten.t(cast)).dtype == torch.float32


@pytest.mark.parametrize("setting", [0.1, "auto", "none"])
def test_denser_weights_have_the_bits_of_the_dense_kernel(setting: SparseProducts) -> None:
    weight = packed(setting)
    assert torch.equal(aten.mm(X, aten.t(weight)), X @ WHOLE.t())
    assert torch.equal(aten.addmm(SLOPE[0], X, aten.t(weight)), aten.addmm(SLOPE[0], X, WHOLE.t()))


def test_all_other_ops_see_the_zeros() -> None:
    weight = packed()
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
