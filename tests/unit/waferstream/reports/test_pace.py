"""Axes of pictures of a pace: numbers written out, for people."""

from collections.abc import Sequence

import pytest
from matplotlib.figure import Figure

from waferstream.reports.pace import counts_axis, rate_axis


def test_a_large_rate_is_written_out() -> None:
    """No power of ten, whatever the pace."""
    axes = Figure().add_subplot()
    axes.set_ylim(1.0, 1e8)
    rate_axis(axes)
    label = axes.yaxis.get_major_formatter()
    assert [label(rate, 0) for rate in (0.02, 500.0, 2e7)] == ["0.02", "500", "20,000,000"]


@pytest.mark.parametrize(
    ("counts", "ticks"),
    [
        ((4,), [4]),
        ((1, 3, 4, 64, 192, 1024, 2048), [1, 3, 4, 64, 192, 2048]),
        (tuple(range(1, 193)), [1, 2, 4, 8, 16, 32, 64, 128, 192]),
        ((1, 2047, 2048), [1, 2048]),
        (tuple(range(65, 100)), [65, 99]),
    ],
)
def test_as_many_numbers_of_systems_as_have_room(counts: Sequence[int], ticks: list[int]) -> None:
    """Both ends always; of a range, powers of two."""
    axes = Figure().add_subplot()
    counts_axis(axes, "CS systems", counts)
    assert list(axes.get_xticks()) == ticks


def test_a_wide_picture_has_room_for_more() -> None:
    """The pictures of GPUs name each power of two."""
    powers = [1 << power for power in range(11)]
    axes = Figure(figsize=(9.0, 5.2)).add_subplot()
    counts_axis(axes, "systems or GPUs", powers)
    assert list(axes.get_xticks()) == powers


def test_numbers_of_systems_stand_on_their_axis() -> None:
    """Those that are asked for and no others, thousands apart."""
    axes = Figure().add_subplot()
    counts_axis(axes, "CS systems", [1, 3, 2048])
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "3", "2,048"]
    assert not axes.xaxis.get_minorticklocs().size
