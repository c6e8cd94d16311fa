"""Fitted constants rest on three rows of two models, and there are 18 at most."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import published
from validation.report.constants import Constant
from validation.report.rule import MOST_CONSTANTS, broken, house_supports, supports

ROWS = list(published().values())


def _fitted(name: str, source: str) -> Constant:
    return Constant("CS2", "A CS-2", name, 1.0, "fitted", source)


@pytest.mark.parametrize(
    ("source", "verdict"),
    [
        ("T0001 T0009 T0017", "fitted"),
        ("T0001 T0003", "to be assumed: 2 rows of 1 model"),
        ("T0001 T0003 T0001", "to be assumed: 2 rows of 1 model"),
        ("T0001", "to be assumed: 1 row of 1 model"),
        ("a guess", "to be assumed: 0 rows of 0 models"),
    ],
)
def test_rule_counts_rows_and_models(source: str, verdict: str) -> None:
    """Rows are those that the source names, each once."""
    (found,) = supports([_fitted("speed", source)], ROWS)
    assert found.verdict == verdict
    assert bool(broken([found])) == (verdict != "fitted")


def test_constant_may_rest_on_the_rows_of_another() -> None:
    """Constants that are fitted together name their rows once."""
    constants = [_fitted("speed", "T0001 T0009 T0017"), _fitted("overhead", "as speed")]
    assert [one.verdict for one in supports(constants, ROWS)] == ["fitted", "fitted"]


def test_there_are_few_fitted_constants() -> None:
    """One more than allowed is a complaint."""
    found = supports([_fitted("speed", "T0001 T0009 T0017")], ROWS)
    assert not broken(found * MOST_CONSTANTS)
    assert len(broken(found * (MOST_CONSTANTS + 1))) == 1


def test_constants_in_use_keep_the_rule() -> None:
    """Three rows of two models each, and not more constants than are allowed."""
    assert broken(house_supports()) == []
    assert len(house_supports()) <= MOST_CONSTANTS
