"""Labels of pictures stand apart, in order, and near their lines."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from waferstream.reports.style import spread

HEIGHTS = st.lists(st.integers(0, 100), max_size=12).map(lambda xs: [x / 100 for x in xs])


@given(HEIGHTS)
def test_labels_never_overlap_and_keep_their_order(heights: list[float]) -> None:
    """Neighbours are a line apart, whoever was lower stays lower."""
    placed = spread(heights, 0.1)
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    for lower, upper in pairwise(order):
        assert placed[upper] - placed[lower] > 0.1 - 1e-9


@given(st.permutations([0.0, 0.2, 0.5, 0.9]))
def test_labels_with_room_stay_where_they_are(heights: list[float]) -> None:
    """Nothing moves without need."""
    assert spread(heights, 0.1) == heights


@given(st.lists(st.integers(0, 100), max_size=8).map(lambda xs: [x / 100 for x in xs]))
def test_labels_stay_within_their_limits(heights: list[float]) -> None:
    """Those at an end make role inwards, still apart."""
    placed = spread(heights, 0.1, 0.0, 1.0)
    assert all(-1e-9 < height < 1 + 1e-9 for height in placed)
    assert all(upper - lower > 0.1 - 1e-9 for lower, upper in pairwise(sorted(placed)))


def test_labels_that_touch_share_the_room_around_their_mean() -> None:
    """Neither of two equal labels is preferred, and a far one is left alone."""
    assert spread([0.5, 0.5, 0.9], 0.1) == [0.45, 0.55, 0.9]
