"""Products of resident operands agree with torch."""

from __future__ import annotations

import numpy as np
import pytest

from csnode.fabric import kernels
from csnode.fabric.dtypes import Dtype
from csnode.fabric.region import Fabric
from tests.support.errors import raises
from tests.support.nightly import nightly
from tests.support.timing.fabric import agree, normal, reference
from waferstream.core.errors import ApplianceCompilationError

RANDOM = np.random.default_rng(5)


ALL_DTYPES = pytest.mark.parametrize("dtype", Dtype)


@ALL_DTYPES
def test_weight_gradient_sums_over_tokens(dtype: Dtype) -> None:
    """Gradients of small integers are exact in every format."""
    x, dy = RANDOM.integers(-3, 4, (8, 6)), RANDOM.integers(-3, 4, (8, 12))
    result = kernels.weight_gradient(Fabric(2, 3), x, dy, dtype)
    np.testing.assert_array_equal(result.values, x.T @ dy)


@pytest.mark.parametrize("outputs", [16, 64, 128])
def test_weight_gradient_larger_than_a_bank(outputs: int) -> None:
    """8 features and up to 256 outputs on each of 4 PEs run in blocks of all, of two, of one."""
    x, dy = RANDOM.integers(-3, 4, (4, 16)), RANDOM.integers(-3, 4, (4, 4 * outputs))
    result = kernels.weight_gradient(Fabric(1, 4), np.repeat(x, 2, axis=1), dy, Dtype.FP16)
    np.testing.assert_array_equal(result.values, np.repeat(x, 2, axis=1).T @ dy)


@ALL_DTYPES
def test_gemv_is_a_matrix_times_a_vector(dtype: Dtype) -> None:
    """A 16 x 12 matrix on 4 x 3 PEs agrees with torch; sums are fp32."""
    a, x = normal(dtype, 16, 12), normal(dtype, 12)
    result = kernels.gemv(Fabric(4, 3), a, x, dtype)
    agree(result, reference(a) @ reference(x), Dtype.FP32, roundings=12, scale=6)


@ALL_DTYPES
@pytest.mark.parametrize(
    "pes", [(1, 1), (2, 2), (4, 4), (1, 4), (4, 1), *nightly(((2, 8),), ((4, 2),))]
)
@pytest.mark.parametrize("rows", [8, 24])
def test_summa_is_a_product(dtype: Dtype, pes: tuple[int, int], rows: int) -> None:
    """Products on rectangles of any shape agree with torch; sums are fp32."""
    a, b = normal(dtype, rows, 16), normal(dtype, 16, 16)
    result = kernels.summa(Fabric(*pes), a, b, dtype)
    agree(result, reference(a) @ reference(b), Dtype.FP32, roundings=16, scale=6)


def test_summa_needs_sides_that_divide() -> None:
    """Slices of a match slices of b only where one side is a multiple of the other."""
    with raises(ApplianceCompilationError, "summa-sides-not-divisible"):
        kernels.summa(Fabric(2, 3), np.ones((6, 6)), np.ones((6, 6)))
