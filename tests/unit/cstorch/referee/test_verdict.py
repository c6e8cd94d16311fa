"""The comparison of a step with a plain loop, and with what rounding does to it."""

from __future__ import annotations

import math

import pytest
import torch

from cstorch.referee.verdict import LIMIT, judge, require_repeatable
from cstorch.witness import StepValues
from tests.support.errors import raises
from waferstream.core.errors import CheckError

PLAIN = StepValues(2.0, {"weight": torch.full((4,), 3.0), "count": torch.tensor(7)})


def moved(by: float, **state: torch.Tensor) -> StepValues:
    """Return the plain values with the first element of the weight moved."""
    weight = torch.full((4,), 3.0)
    weight[0] += by
    return StepValues(2.0, {**PLAIN.state, "weight": weight, **state})


def test_same_bits_are_equal() -> None:
    assert judge(1, moved(0.0), PLAIN, [moved(0.1)]).outcome == "equal"


@pytest.mark.parametrize(("times", "outcome"), [(LIMIT - 1, "close"), (LIMIT + 1, "different")])
def test_distance_is_measured_in_what_rounding_does(times: int, outcome: str) -> None:
    """The farthest of the loops with random rounding counts."""
    rounded = [moved(0.001), moved(-0.01), moved(0.0)]
    verdict = judge(1, moved(0.01 * times), PLAIN, rounded)
    assert verdict.outcome == outcome
    assert verdict.farthest.name == "weight"
    assert verdict.farthest.times == pytest.approx(times, rel=1e-3)


def test_last_place_is_close_where_nothing_rounds() -> None:
    assert judge(1, moved(2.0**-22), PLAIN, [PLAIN]).outcome == "close"
    assert judge(1, moved(2.0**-15), PLAIN, [PLAIN]).outcome == "different"


def test_integers_must_be_equal() -> None:
    verdict = judge(1, moved(0.0, count=torch.tensor(8)), PLAIN, [PLAIN])
    assert [each.name for each in verdict.different] == ["count"]


def test_nan_is_equal_to_nan_alone() -> None:
    nan = moved(math.nan)
    assert judge(1, nan, nan, [nan]).outcome == "equal"
    assert judge(1, nan, PLAIN, [PLAIN]).outcome == "different"


def test_rounding_that_ends_in_nan_measures_nothing() -> None:
    assert judge(1, moved(1.0), PLAIN, [moved(math.nan), PLAIN]).outcome == "different"


def test_loops_that_differ_cannot_be_compared_with() -> None:
    require_repeatable([PLAIN], [moved(0.0)])
    with raises(CheckError, "check-not-repeatable"):
        require_repeatable([PLAIN], [moved(1e-6)])
