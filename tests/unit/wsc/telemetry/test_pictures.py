"""Unit tests of wsc.telemetry.pictures."""

import math
from dataclasses import fields
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.image import imread
from summaries import summary

from wsc.telemetry.pictures import CAUSE_COLORS, loss_picture, scaling_picture
from wsc.telemetry.scaling import Scaling
from wsc.telemetry.style import BLUE, VERMILION
from wsc.timing.attribution import Attribution


def shows(path: Path, color: str) -> bool:
    """Whether a PNG has pixels of just this color."""
    pixels = imread(path)[..., :3]
    return bool((abs(pixels - mpl.colors.to_rgb(color)) < 0.5 / 255).all(axis=-1).any())


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


@pytest.mark.parametrize("counts", [(4,), tuple(range(1, 10))])
def test_the_scaling_picture_shows_the_causes_of_every_step(
    tmp_path: Path, counts: tuple[int, ...]
) -> None:
    """Compute and reduce take time in these runs, input does not."""
    scaling = Scaling.of([summary(count, reduce_ps=500_000) for count in counts])
    scaling_picture(tmp_path / "scaling.png", scaling, "scaling")
    for cause in ("compute", "reduce"):
        assert shows(tmp_path / "scaling.png", CAUSE_COLORS[cause])
    assert not shows(tmp_path / "scaling.png", CAUSE_COLORS["input"])


def test_every_cause_has_a_color_of_its_own() -> None:
    """Two causes in one color could not be told apart."""
    assert set(CAUSE_COLORS) == {field.name for field in fields(Attribution)}
    assert len(set(CAUSE_COLORS.values())) == len(CAUSE_COLORS)


def test_drawing_leaves_no_trace_in_matplotlibs_settings(tmp_path: Path) -> None:
    """A user's own plots look the same before and after."""
    before = dict(mpl.rcParams)
    loss_picture(tmp_path / "loss.png", CURVE, [], "quiet")
    assert dict(mpl.rcParams) == before
    assert list(tmp_path.iterdir()) == [tmp_path / "loss.png"]
