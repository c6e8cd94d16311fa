"""The picture of a simulation shows pace and causes, for any number of systems."""

from pathlib import Path

import pytest
from PIL import Image

from tests.support.colours import shows
from tests.support.words import drawn, overlapping, words
from timing.attribution import Attribution
from waferstream.reports.causes import CAUSE_COLORS
from waferstream.reports.error_bars import ErrorBar
from waferstream.reports.simulation_picture import SimulatedPace, simulation_picture


@pytest.mark.parametrize("counts", [(4,), (1, 2, 4), tuple(range(1, 65))])
def test_pace_and_causes_are_drawn(tmp_path: Path, counts: tuple[int, ...]) -> None:
    """One number of systems, a few, or many; a cause that takes no time is not there."""
    path = tmp_path / "simulation.png"
    causes = Attribution(compute=600, weights=300, reduce=100)
    simulation_picture(path, "made up", [SimulatedPace(n, 2.0 * n, causes) for n in counts], None)
    for cause in ("compute", "weights", "reduce"):
        assert shows(path, CAUSE_COLORS[cause])
    assert not shows(path, CAUSE_COLORS["input"])


@pytest.mark.parametrize(
    "counts", [(4,), (1, 2, 3, 4, 5, 6, 7, 8), (1, 2047, 2048), (1, 3, 4, 64, 192, 1024, 2048)]
)
def test_no_two_words_lie_on_each_other(tmp_path: Path, counts: tuple[int, ...]) -> None:
    """Neither close numbers of systems, nor close rates, nor causes that take next to no time."""
    causes = Attribution(compute=940, overhead=20, weights=20, reduce=20)
    paces = [SimulatedPace(n, 26_000.0 * n, causes) for n in counts]
    with drawn() as figures:
        simulation_picture(tmp_path / "simulation.png", "made up", paces, None)
    assert overlapping(figures[0]) == []
    assert f"{26_000 * counts[-1]:,}" in words(figures[0])
    assert ("ideal" in words(figures[0])) == (len(counts) > 1), "a single pace has none"


@pytest.mark.parametrize("counts", [(4,), tuple(range(1, 65))])
def test_an_error_bar_is_drawn_where_it_is_known(tmp_path: Path, counts: tuple[int, ...]) -> None:
    """A bar at each dot, a band along a line: the picture is another than without."""
    paces = [SimulatedPace(n, 2.0 * n, Attribution(compute=1000)) for n in counts]
    bars = {"without": None, "with": ErrorBar("CS-2", 10, 0.05, 0.1, 0.3)}
    for name, bar in bars.items():
        simulation_picture(tmp_path / name, "made up", paces, bar)
    with Image.open(tmp_path / "without") as one, Image.open(tmp_path / "with") as other:
        assert one.tobytes() != other.tobytes()
