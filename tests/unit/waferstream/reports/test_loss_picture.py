"""The picture of a run's losses: both curves, whatever they hold."""

import math
from pathlib import Path

import matplotlib as mpl
import pytest

from tests.support.pictures import shows
from waferstream.reports.loss_picture import loss_picture
from waferstream.reports.style import BLUE, VERMILION

CURVE = tuple((step, 5.0 / step) for step in range(1, 201))


@pytest.mark.parametrize("train", [CURVE, CURVE[:1]])
def test_both_curves_are_drawn(tmp_path: Path, train: tuple[tuple[int, float], ...]) -> None:
    """A long curve and a single point, each in its color."""
    loss_picture(tmp_path / "loss.png", train, [(5, 2.0)], "two curves")
    assert shows(tmp_path / "loss.png", BLUE)
    assert shows(tmp_path / "loss.png", VERMILION)


def test_a_diverged_run_still_gets_its_picture(tmp_path: Path) -> None:
    """Losses that are not finite are left out, even if there is no other."""
    loss_picture(tmp_path / "some.png", [(1, 5.0), (2, math.nan), (3, 4.0)], [], "one is NaN")
    loss_picture(tmp_path / "none.png", [(1, math.nan)], [(1, math.inf)], "none is finite")
    assert shows(tmp_path / "some.png", BLUE)
    assert not shows(tmp_path / "none.png", BLUE)


def test_drawing_leaves_no_trace_in_matplotlibs_settings(tmp_path: Path) -> None:
    """A user's own plots look the same before and after."""
    before = dict(mpl.rcParams)
    loss_picture(tmp_path / "loss.png", CURVE, [], "quiet")
    assert dict(mpl.rcParams) == before
    assert list(tmp_path.iterdir()) == [tmp_path / "loss.png"]
