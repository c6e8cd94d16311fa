"""Gradients of sparse weights on the simulated wafer: exact values, and none for masked weights."""

from __future__ import annotations

import numpy as np
import pytest

from csnode.fabric import kernels
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.region import Fabric
from tests.support.errors import raises
from waferstream.core.errors import ApplianceCompilationError

RANDOM = np.random.default_rng(5)


def operands(tokens: int, outputs: int, inputs: int) -> tuple[Array, Array]:
    """Return dy and x of small integers, whose products and sums are exact in every format."""
    return RANDOM.integers(-3, 4, (tokens, outputs)), RANDOM.integers(-3, 4, (tokens, inputs))


@pytest.mark.parametrize("dtype", [Dtype.FP16, Dtype.BF16])
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (1, 1)])
def test_gradients_are_those_of_weights_that_arrive(dtype: Dtype, rows: int, columns: int) -> None:
    """A PE without weights in a step, an input without any, others at random places."""
    dy, x = operands(4 * rows, 4 * columns, 2 * columns)
    mask = RANDOM.random((4 * columns, 2 * columns)) < 0.5
    mask[:4, 0] = False
    mask[:, -1] = False
    result = kernels.masked_weight_gradient(Fabric(rows + 1, columns), dy, x, mask, dtype)
    np.testing.assert_array_equal(result.values, (dy.T @ x) * mask)


@pytest.mark.parametrize("kept", [False, True])
def test_mask_may_keep_nothing_or_everything(kept: bool) -> None:
    """All gradients equal those of the dense kernel."""
    dy, x = operands(8, 6, 4)
    mask = np.full((6, 4), kept)
    result = kernels.masked_weight_gradient(Fabric(3, 2), dy, x, mask)
    dense = kernels.weight_gradient(Fabric(2, 2), dy, x, Dtype.FP16)
    np.testing.assert_array_equal(result.values, dense.values * kept)


def test_masked_weights_take_no_work() -> None:
    """Tokens of one weight: a cycle for four products and one to be triggered."""
    dy, x = operands(32, 8, 4)
    one, two = np.zeros((2, 8, 4), dtype=bool)
    one[0, 0] = two[0, 0] = two[1, 0] = True
    busy = [
        kernels.masked_weight_gradient(Fabric(3, 2), dy, x, mask).outcome.busy_cycles[2, 0]
        for mask in (one, two)
    ]
    assert busy[1] - busy[0] == 16 / 4 + 1 + 1  # and one more to send the gradient upward


@pytest.mark.parametrize(
    ("shape", "dtype"), [((6, 4), Dtype.FP16), ((4, 6), Dtype.FP32), ((4, 4), Dtype.FP16)]
)
def test_operands_that_do_not_fit_are_refused(shape: tuple[int, int], dtype: Dtype) -> None:
    """A turned mask, weights without an index, and a mask of another weight."""
    dy, x = operands(4, 4, 6)
    with raises(ApplianceCompilationError, "masked-gradient-operands"):
        kernels.masked_weight_gradient(Fabric(2, 2), dy, x, np.ones(shape, dtype=bool), dtype)
