"""Our pace beside that of GPU clusters: every curve that has a label can be seen."""

from pathlib import Path

from tests.support.colours import shows
from tests.support.words import drawn, overlapping, words
from waferstream.reports import style
from waferstream.reports.gpu_picture import PaceCurve, gpu_picture

OURS = PaceCurve("CS-2, emulated", "", [1, 4], [10.0, 40.0])


def test_a_model_that_fits_one_size_of_cluster_is_a_dot(tmp_path: Path) -> None:
    """A line needs two ends; one that fits nowhere is not there at all."""
    path = tmp_path / "gpus.png"
    curves = [PaceCurve("A100", "DDP", [], []), PaceCurve("H100", "ZeRO-3", [1024], [30.0])]
    with drawn() as figures:
        gpu_picture(path, "made up", "a note", OURS, curves)
    axes = figures[0].axes[0]
    assert [len(line.get_xdata()) for line in axes.lines] == [2, 1]
    assert all(line.get_marker() == "o" for line in axes.lines)
    assert shows(path, style.VERMILION)
    assert "H100 ZeRO-3" in words(figures[0])
    assert not any("A100" in word for word in words(figures[0]))


def test_no_two_words_lie_on_each_other(tmp_path: Path) -> None:
    """Six curves that end close to each other, and a note of two lines."""
    curves = [
        PaceCurve(kind, way, [1, 1024], [1.0, 1e5 + place])
        for place, (kind, way) in enumerate((k, w) for k in ("A100", "H100") for w in "abc")
    ]
    with drawn() as figures:
        gpu_picture(tmp_path / "gpus.png", "made up", "a long note " * 20, OURS, curves)
    assert overlapping(figures[0]) == []
