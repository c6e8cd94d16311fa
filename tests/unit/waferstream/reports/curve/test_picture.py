"""Pictures of curves: every curve and cause is visible, no texts overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from tests.support.nightly import nightly
from tests.support.reports.pictures import drawn, overlapping, shows, words
from tests.support.reports.summaries import run_curve, simulated_curve, summary
from tests.support.timing.gpu_points import made_up_curve
from waferstream.baselines.gpu import DGX_A100, DGX_H100, KINDS
from waferstream.machine.attribution import Attribution
from waferstream.reports import style
from waferstream.reports.curve.picture import (
    CAUSE_COLORS,
    counts_axis,
    curve_picture,
    gpu_picture,
    rate_axis,
)
from waferstream.reports.curve.result import GpuComparison
from waferstream.reports.evidence import ErrorBar

BAR = ErrorBar("CS-2", 10, 0.05, 0.1, 0.3, (1e6, 1e13), 64)
CAUSES = Attribution(compute=940, overhead=20, weights=20, reduce=20)
COUNTS = [(4,), (1, 2, 3, 4, 5, 6, 7, 8), (1, 2047, 2048), (1, 3, 4, 64, 192, 1024, 2048)]


def test_cause_colors_are_distinct_and_in_stacking_order() -> None:
    assert list(CAUSE_COLORS) == [field.name for field in fields(Attribution)]
    assert len(set(CAUSE_COLORS.values())) == len(CAUSE_COLORS)


@pytest.mark.parametrize("counts", [(4,), *nightly(((1, 2, 4),)), tuple(range(1, 26))])
def test_curve_picture_shows_causes_that_take_time(tmp_path: Path, counts: Sequence[int]) -> None:
    path = tmp_path / "simulation.png"
    causes = Attribution(compute=600, weights=300, reduce=100)
    curve_picture(path, "made up", simulated_curve(counts, causes))
    for cause in ("compute", "weights", "reduce"):
        assert shows(path, CAUSE_COLORS[cause])
    assert not shows(path, CAUSE_COLORS["input"])


@pytest.mark.parametrize("counts", COUNTS)
def test_curve_picture_of_a_simulation_has_no_overlaps(
    tmp_path: Path, counts: Sequence[int]
) -> None:
    """Close counts, close rates, and causes with tiny shares."""
    result = simulated_curve(counts, CAUSES)
    with drawn() as figures:
        curve_picture(tmp_path / "simulation.png", "made up", result)
    assert overlapping(figures[0]) == []
    assert ("ideal" in words(figures[0])) == (len(counts) > 1)
    assert not any(word.startswith("measured") for word in words(figures[0]))


@pytest.mark.parametrize("counts", [(4,), (1, 2, 4, 8), tuple(range(1, 10))])
def test_curve_picture_of_runs_has_no_overlaps(tmp_path: Path, counts: Sequence[int]) -> None:
    result = run_curve(*(summary(count, reduce_ps=500_000) for count in counts))
    with drawn() as figures:
        curve_picture(tmp_path / "scaling.png", "scaling", result)
    assert overlapping(figures[0]) == []
    assert "measured 32" in words(figures[0])


def test_curve_picture_compares_machines(tmp_path: Path) -> None:
    """One curve for each, with the name of its system."""
    result = simulated_curve((1, 2, 4), CAUSES)
    other = replace(simulated_curve((1, 2, 4), CAUSES), system="CS-3")
    with drawn() as figures:
        curve_picture(tmp_path / "both.png", "made up", replace(result, others=(other,)))
    assert any(word.startswith("CS-3 ") for word in words(figures[0]))
    assert overlapping(figures[0]) == []


def test_curve_picture_writes_step_times_where_bars_are_wide(tmp_path: Path) -> None:
    runs = [summary(count, reduce_ps=500_000) for count in range(1, 9)]
    with drawn() as figures:
        curve_picture(tmp_path / "wide.png", "four", run_curve(*(runs[i] for i in (0, 1, 3, 7))))
        curve_picture(tmp_path / "narrow.png", "eight", run_curve(*runs))
    assert "4.50 us" in words(figures[0])
    assert "4.50 us" not in words(figures[1])


def test_compared_machines_may_have_other_numbers_of_systems(tmp_path: Path) -> None:
    """Two clusters of CS-2, one of which has fewer."""
    few, many = (simulated_curve(counts, CAUSES) for counts in ((1, 16), (1, 16, 64)))
    with drawn(are_saved=True) as figures:
        curve_picture(tmp_path / "curve.png", "made up", replace(few, others=(many,)))
    assert {"CS-2 384", "CS-2 1,536"} <= set(words(figures[0]))


@pytest.mark.parametrize("counts", [(4,), *nightly((tuple(range(1, 26)),))])
def test_curve_picture_draws_a_known_error_bar(tmp_path: Path, counts: Sequence[int]) -> None:
    """A bar behind each dot, or a band along a line."""
    with_bar = simulated_curve(counts, CAUSES, BAR)
    curve_picture(tmp_path / "without", "made up", simulated_curve(counts, CAUSES))
    curve_picture(tmp_path / "with", "made up", with_bar)
    with Image.open(tmp_path / "without") as one, Image.open(tmp_path / "with") as other:
        assert one.tobytes() != other.tobytes()


@pytest.mark.parametrize("counts", [(1, 4), *nightly((tuple(range(1, 26)),))])
def test_curve_picture_draws_extrapolated_bars_paler(tmp_path: Path, counts: Sequence[int]) -> None:
    covered = simulated_curve(counts, CAUSES, BAR)
    points = [replace(point, extrapolated=("why",)) for point in covered.points]
    beyond = replace(covered, points=(covered.points[0], *points[1:]))
    with drawn(are_saved=True) as figures:
        curve_picture(tmp_path / "covered.png", "made up", covered)
        curve_picture(tmp_path / "beyond.png", "made up", beyond)
    assert "extrapolated" not in " ".join(words(figures[0]))
    assert "pale: extrapolated" in " ".join(words(figures[1]))
    assert overlapping(figures[1]) == []
    first, second = (tmp_path / "covered.png", tmp_path / "beyond.png")
    assert first.read_bytes() != second.read_bytes()


def test_gpu_picture_draws_a_single_fitting_point_as_a_dot(tmp_path: Path) -> None:
    path = tmp_path / "gpus.png"
    result = simulated_curve((1, 4), CAUSES)
    gpus = GpuComparison(
        (
            made_up_curve("A100", "ddp", {8: 0.0}),
            made_up_curve("H100", "zero3", {8: 0.0, 1024: 30.0}),
        ),
        "a note",
    )
    with drawn(are_saved=True) as figures:
        gpu_picture(path, "made up", result, gpus)
    axes = figures[0].axes[0]
    assert [np.size(line.get_xdata()) for line in axes.lines] == [2, 1]
    assert all(line.get_marker() == "o" for line in axes.lines)
    assert shows(path, style.VERMILION)
    assert "H100 ZeRO-3" in words(figures[0])
    assert not any("A100" in word for word in words(figures[0]))


def test_gpu_picture_has_no_overlaps(tmp_path: Path) -> None:
    """Six curves that end close to each other, and a note of two lines."""
    curves = tuple(
        made_up_curve(cluster.gpu.name, kind, {1: 1.0, 1024: 1e5 + index})
        for index, (cluster, kind) in enumerate((c, k) for c in (DGX_A100, DGX_H100) for k in KINDS)
    )
    gpus = GpuComparison(curves, "a long note " * 20)
    with drawn() as figures:
        gpu_picture(tmp_path / "gpus.png", "made up", simulated_curve((1, 4), CAUSES), gpus)
    assert overlapping(figures[0]) == []


def test_rate_axis_writes_numbers_without_exponents() -> None:
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
def test_counts_axis_has_as_many_ticks_as_fit(counts: Sequence[int], ticks: list[int]) -> None:
    """Both ends always; of many counts, powers of two."""
    axes = Figure().add_subplot()
    counts_axis(axes, "CS systems", counts)
    assert list(axes.get_xticks()) == ticks


def test_counts_axis_of_a_wide_picture_has_more_ticks() -> None:
    powers = [1 << power for power in range(11)]
    axes = Figure(figsize=(9.0, 5.2)).add_subplot()
    counts_axis(axes, "systems or GPUs", powers)
    assert list(axes.get_xticks()) == powers


def test_counts_axis_is_logarithmic_with_written_numbers() -> None:
    axes = Figure().add_subplot()
    counts_axis(axes, "CS systems", [1, 3, 2048])
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "3", "2,048"]
    assert not axes.xaxis.get_minorticklocs().size
