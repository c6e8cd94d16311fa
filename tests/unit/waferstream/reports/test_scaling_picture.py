"""The picture of a scaling experiment shows pace and causes."""

from pathlib import Path

import pytest

from tests.support.colours import shows
from tests.support.summaries import summary
from tests.support.words import drawn, overlapping, words
from waferstream.reports.causes import CAUSE_COLORS
from waferstream.reports.scaling import Scaling
from waferstream.reports.scaling_picture import scaling_picture


@pytest.mark.parametrize("counts", [(4,), tuple(range(1, 10))])
def test_the_scaling_picture_shows_the_causes_of_every_step(
    tmp_path: Path, counts: tuple[int, ...]
) -> None:
    """Compute and reduce take time in these runs, input does not."""
    scaling = Scaling.of([summary(count, reduce_ps=500_000) for count in counts])
    with drawn() as figures:
        scaling_picture(tmp_path / "scaling.png", scaling, "scaling")
    assert overlapping(figures[0]) == []
    assert ("ideal" in words(figures[0])) == (len(counts) > 1), "a single pace has none"
    for cause in ("compute", "reduce"):
        assert shows(tmp_path / "scaling.png", CAUSE_COLORS[cause])
    assert not shows(tmp_path / "scaling.png", CAUSE_COLORS["input"])
