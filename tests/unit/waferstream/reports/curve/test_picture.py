"""Pictures of curves: every curve and cause is visible, no texts overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.support.nightly import nightly
from tests.support.reports.pictures import drawn, overlapping, shows, words
from tests.support.reports.summaries import INTERVAL, UNKNOWN, simulated_curve
from tests.support.timing.gpu_points import made_up_curve
from waferstream.baselines.gpu.clusters import DGX_A100, DGX_H100
from waferstream.baselines.gpu.curve import KINDS
from waferstream.machine.attribution import Attribution
from waferstream.reports import style
from waferstream.reports.curve.picture import (
    counts_axis,
    curve_picture,
    gpu_picture,
    rate_axis,
)
from waferstream.reports.curve.result import GpuComparison

CAUSES = Attribution(compute=940, overhead=20, weights=20, reduce=20)
COUNTS = [(4,), (1, 2, 3, 4, 5, 6, 7, 8), (1, 2047, 2048), (1, 3, 4, 64, 192, 1024, 2048)]


def test_cause_colors_are_distinct_and_in_stacking_order() -> None:
    assert list(style.CAUSE_COLORS) == [field.name for field in fields(Attribution)]
    assert len(set(style.CAUSE_COLORS.values())) == len(style.CAUSE_COLORS)


@pytest.mark.parametrize("counts", [(1, 4), *nightly((tuple(range(1, 26)),))])
def test_curve_picture_draws_known_intervals(tmp_path: Path, counts: Sequence[int]) -> None:
    """A bar behind each dot, or a band along a line; the title says which shares they hold."""
    with drawn(are_saved=True) as figures:
        for name, interval in (("known", INTERVAL), ("unknown", UNKNOWN), ("without", None)):
            path = tmp_path / f"{name}.png"
            curve_picture(path, "made up", simulated_curve(counts, CAUSES, interval))
    said = ["50 % and 90 % intervals" in " ".join(words(figure)) for figure in figures]
    assert said == [True, False, False]
    assert overlapping(figures[0]) == []
    known, unknown, without = ((tmp_path / f"{name}.png").read_bytes()
                               for name in ("known", "unknown", "without"))  # fmt: skip
    assert known != unknown == without


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
    assert [np.size(line.get_xdata()) for line in axes.lines] == [2, 1, 1]
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
