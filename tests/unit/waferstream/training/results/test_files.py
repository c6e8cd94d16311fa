"""The title of a run's figure."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import pytest

from tests.support.reports.pictures import shows
from tests.support.reports.summaries import summary
from waferstream.reports.run.summary import ModelSummary
from waferstream.reports.style import BLUE, VERMILION
from waferstream.training.results.files import loss_picture, title_of

CURVE = tuple((step, 5.0 / step) for step in range(1, 201))


def test_title_names_models_of_any_size() -> None:
    run = summary(num_csx=2)
    assert title_of(run) == "gpt2, 3.3 million parameters, 2 x CS-2"
    small = replace(run, model=ModelSummary("GPT", 28_500))
    assert title_of(small) == "GPT, 28.5 thousand parameters, 2 x CS-2"


@pytest.mark.parametrize("train", [CURVE, CURVE[:1]])
def test_loss_picture_draws_both_curves(
    tmp_path: Path, train: tuple[tuple[int, float], ...]
) -> None:
    """A long curve and a single point."""
    loss_picture(tmp_path / "loss.png", train, [(5, 2.0)], "two curves")
    assert shows(tmp_path / "loss.png", BLUE)
    assert shows(tmp_path / "loss.png", VERMILION)


def test_loss_picture_leaves_out_losses_that_are_not_finite(tmp_path: Path) -> None:
    """Even if no other is left."""
    loss_picture(tmp_path / "some.png", [(1, 5.0), (2, math.nan), (3, 4.0)], [], "one is NaN")
    loss_picture(tmp_path / "none.png", [(1, math.nan)], [(1, math.inf)], "none is finite")
    assert shows(tmp_path / "some.png", BLUE)
    assert not shows(tmp_path / "none.png", BLUE)


def test_loss_picture_keeps_matplotlib_settings(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    loss_picture(tmp_path / "loss.png", CURVE, [], "quiet")
    assert dict(mpl.rcParams) == before
    assert list(tmp_path.iterdir()) == [tmp_path / "loss.png"]
