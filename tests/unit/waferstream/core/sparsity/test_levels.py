"""Levels of sparsity: their values, and the lowest of them."""

from __future__ import annotations

import pytest

from waferstream.core.sparsity.levels import (
    AnyLevel,
    Constant,
    Cosine,
    Cycling,
    Exp,
    Linear,
    Power,
    Table,
)
from waferstream.core.sparsity.spec import UpdateSteps, WeightSparsity


@pytest.mark.parametrize(
    ("level", "lowest"),
    [
        (Constant(value=0.75), 0.75),
        (Linear(init=0.5, slope=0.01), 0.5),
        (Linear(init=0.5, slope=-0.01), 0.0),
        (Exp(init=0.9, gamma=-0.1, final=0.2), 0.2),
        (Exp(init=0.2, gamma=-0.1, final=0.9), 0.2),
        (Exp(init=0.8, gamma=0.1, final=0.9), 0.0),
        (Exp(init=0.9, gamma=0.1, final=0.8), 0.9),
        (Power(init=0.5, beta=1.01), 0.5),
        (Power(init=0.5, beta=0.5), 0.0),
        (Cosine(init=0.9, half_period=7, minimum=0.3), 0.3),
        (Cycling(values=(0.5, 0.25, 0.75)), 0.25),
        (Table(values=(0.5, -1.0, 2.0)), 0.0),
    ],
)
def test_lowest_is_the_infimum_of_all_values(level: AnyLevel, lowest: float) -> None:
    values = [level.at(update, num_changes=update) for update in range(1000)]
    assert level.lowest == lowest == pytest.approx(min(values), abs=1e-9)


def test_largest_density_is_that_of_the_lowest_level() -> None:
    """It is 1 where weights start dense, or where the level does not decide the first mask."""
    rising = Linear(init=0.5, slope=0.25)
    spec = WeightSparsity("w", "gmp", rising, update=UpdateSteps(freq=1))
    assert [spec.density((4, 8), update) for update in range(3)] == [0.5, 0.25, 0.0]
    assert spec.largest_density((4, 8)) == 0.5
    later = WeightSparsity("w", "gmp", rising, update=UpdateSteps(freq=1, start=1))
    zeros = WeightSparsity("w", "static", None, init="from_zeros")
    given = WeightSparsity("w", "static", Constant(value=0.5), init="given")
    assert [s.largest_density((4, 8)) for s in (later, zeros, given)] == [1.0, 1.0, 1.0]
    assert WeightSparsity("w", "static", Constant(value=0.5)).largest_density((0, 4)) == 1.0
