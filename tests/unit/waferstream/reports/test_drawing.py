"""Drawings place values where their axes say, and leave out what is not a number."""

from __future__ import annotations

import math
import re

import pytest

from waferstream.reports.drawing import Series, chart, stacked, ticks


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 10.0, [0, 2, 4, 6, 8, 10]),
        (1.0, 4.0, [1, 2, 3, 4]),
        (2.31, 5.6, [3, 4, 5]),
        (-0.5, 0.5, [-0.4, -0.2, 0, 0.2, 0.4]),
        (7.0, 7.0, [7]),
    ],
)
def test_ticks_are_round_and_inside(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high, 5) == pytest.approx(expected)


def test_chart_leaves_out_values_that_are_not_finite() -> None:
    points = ((1.0, 2.0), (2.0, math.nan), (3.0, math.inf), (4.0, 1.0))
    drawn = chart([Series("loss", points, "blue")], "step", "Loss")
    (curve,) = re.findall(r'points="([^"]+)" class="stroke-blue"', drawn)
    first, last = (tuple(map(float, point.split(","))) for point in curve.split())
    assert first[0] < last[0]
    assert first[1] < last[1]  # y grows downward
    assert "nan" not in drawn


def test_chart_of_a_single_value_is_a_dot() -> None:
    drawn = chart([Series("loss", ((1.0, 2.0),), "blue")], "step", "Loss")
    assert drawn.count("<circle") == 1


def test_chart_without_a_finite_value_says_so() -> None:
    assert "no finite value" in chart([Series("loss", ((1.0, math.nan),), "blue")], "step", "Loss")


def test_chart_of_a_long_curve_keeps_its_last_value() -> None:
    points = tuple((float(step), 1.0 / step) for step in range(1, 10_001))
    drawn = chart([Series("loss", points, "blue")], "step", "Loss")
    (curve,) = re.findall(r'points="([^"]+)" class="stroke-blue"', drawn)
    assert len(curve.split()) <= 900
    assert curve.split()[-1].startswith("410,")


def test_chart_escapes_names() -> None:
    assert "<b>" not in chart([Series("<b>", ((1.0, 2.0), (2.0, 3.0)), "blue")], "x", "<b>")


def test_stacked_bars_lie_on_each_other() -> None:
    (low, _), (high, _) = stacked((([1, 2], "blue"), ([3, 1], "orange")), (0, 0, 10, 100), 4)
    assert low == [(0, 75), (5, 75), (5, 50), (10, 50), (10, 100), (5, 100), (5, 100), (0, 100)]
    assert high[:4] == [(0, 0), (5, 0), (5, 25), (10, 25)]
    assert high[4:] == list(reversed(low[:4]))
