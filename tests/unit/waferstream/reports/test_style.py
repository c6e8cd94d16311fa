"""Labels of pictures do not overlap, keep their order, and stay near their curves."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from matplotlib import rc_context

from waferstream.reports.style import picture, spread

HEIGHTS = st.lists(st.integers(0, 100), max_size=12).map(lambda xs: [x / 100 for x in xs])


@given(HEIGHTS)
def test_spread_keeps_distance_and_order(heights: list[float]) -> None:
    placed = spread(heights, 0.1)
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    for lower, upper in pairwise(order):
        assert placed[upper] - placed[lower] > 0.1 - 1e-9


@given(st.permutations([0.0, 0.2, 0.5, 0.9]))
def test_spread_keeps_heights_that_are_apart(heights: list[float]) -> None:
    assert spread(heights, 0.1) == heights


@given(st.lists(st.integers(0, 100), max_size=8).map(lambda xs: [x / 100 for x in xs]))
def test_spread_stays_within_limits(heights: list[float]) -> None:
    placed = spread(heights, 0.1, 0.0, 1.0)
    assert all(-1e-9 < height < 1 + 1e-9 for height in placed)
    assert all(upper - lower > 0.1 - 1e-9 for lower, upper in pairwise(sorted(placed)))


def test_spread_centres_close_heights_around_their_mean() -> None:
    assert spread([0.5, 0.5, 0.9], 0.1) == [0.45, 0.55, 0.9]


def test_users_own_style_of_matplotlib_changes_no_picture(tmp_path: Path) -> None:
    """A matplotlibrc in any of the places where it is looked for."""
    pictures = []
    styles: tuple[dict[Any, Any], ...] = ({}, {"axes.facecolor": "red", "lines.marker": "o"})
    for own in styles:
        with rc_context(own), picture(tmp_path / "a.png", "A line", 6.0, 3.0) as figure:
            figure.add_subplot().plot([1, 2], [3, 4])
        pictures.append((tmp_path / "a.png").read_bytes())
    assert pictures[0] == pictures[1]
