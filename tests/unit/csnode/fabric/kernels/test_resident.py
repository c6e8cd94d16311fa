"""Products of resident operands agree with torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from csnode.fabric import Dtype, Fabric, kernels
from csnode.fabric.dtypes import decode, encode
from tests.support.errors import raises
from wsc.core.errors import ApplianceCompilationError

RANDOM = np.random.default_rng(5)


ALL_DTYPES = pytest.mark.parametrize("dtype", Dtype)


EPSILON = {Dtype.FP32: 2.0**-23, Dtype.FP16: 2.0**-10, Dtype.BF16: 2.0**-7}


def normal(dtype, *shape):
    """Values that the format can hold."""
    return decode(encode(RANDOM.normal(size=shape), dtype), dtype)


def reference(x):
    return torch.from_numpy(np.asarray(x, dtype=np.float64))


def agree(result, expected, dtype, roundings, scale=1.0):
    """Within as many roundings of the format as a value of this scale takes."""
    tolerance = roundings * EPSILON[dtype] * scale
    np.testing.assert_allclose(result.values, expected.numpy(), rtol=0, atol=tolerance)


@ALL_DTYPES
def test_weight_gradient_sums_over_tokens(dtype: Dtype) -> None:
    """Exact for small integers in every format."""
    x, dy = RANDOM.integers(-3, 4, (8, 6)), RANDOM.integers(-3, 4, (8, 12))
    result = kernels.weight_gradient(Fabric(2, 3), x, dy, dtype)
    np.testing.assert_array_equal(result.values, x.T @ dy)


@pytest.mark.parametrize("outputs", [16, 64, 128])
def test_weight_gradient_larger_than_a_bank(outputs: int) -> None:
    """8 features and up to 256 outputs on each of 4 PEs: blocks of all, of two, of one."""
    x, dy = RANDOM.integers(-3, 4, (4, 16)), RANDOM.integers(-3, 4, (4, 4 * outputs))
    result = kernels.weight_gradient(Fabric(1, 4), np.repeat(x, 2, axis=1), dy, Dtype.FP16)
    np.testing.assert_array_equal(result.values, np.repeat(x, 2, axis=1).T @ dy)


@ALL_DTYPES
def test_gemv_is_a_matrix_times_a_vector(dtype: Dtype) -> None:
    """16 x 12 on 4 x 3 PEs, sums in fp32."""
    a, x = normal(dtype, 16, 12), normal(dtype, 12)
    result = kernels.gemv(Fabric(4, 3), a, x, dtype)
    agree(result, reference(a) @ reference(x), Dtype.FP32, roundings=12, scale=6)


@ALL_DTYPES
@pytest.mark.parametrize("pes", [(1, 1), (2, 2), (4, 4), (1, 4), (4, 1), (2, 8), (4, 2)])
@pytest.mark.parametrize("rows", [8, 24])
def test_summa_is_a_product(dtype: Dtype, pes: tuple[int, int], rows: int) -> None:
    """Both operands broadcast, in slices as many as the longer side has PEs; sums in fp32."""
    a, b = normal(dtype, rows, 16), normal(dtype, 16, 16)
    result = kernels.summa(Fabric(*pes), a, b, dtype)
    agree(result, reference(a) @ reference(b), Dtype.FP32, roundings=16, scale=6)


def test_summa_needs_sides_that_divide() -> None:
    """Slices of a line up with slices of b where one side is a multiple of the other."""
    with raises(ApplianceCompilationError, "summa-sides-not-divisible"):
        kernels.summa(Fabric(2, 3), np.ones((6, 6)), np.ones((6, 6)))
