"""The picture of a scaling experiment. Import late: matplotlib takes its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from waferstream.reports import style
from waferstream.reports.causes import CAUSE_COLORS, cause_labels
from waferstream.reports.pace import counts_axis, draw_ideal, ideal_rates, rate_axis
from waferstream.reports.scaling import Scaling
from wsc.core.units import format_ps


def scaling_picture(path: Path, scaling: Scaling, title: str) -> None:
    """Draw the pace against the number of systems, and by cause where an emulated step goes."""
    width = 11.0 + 1.8 * max(0, len(scaling.points) - 6)
    with style.picture(path, title, width, 4.8) as figure:
        pace, causes = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
        labels = _pace_panel(pace, scaling)
        _causes_panel(causes, scaling)
        figure.draw_without_rendering()
        style.label_ends(pace, labels)
        shares = [point.emulated.attribution_ps.shares() for point in scaling.points]
        style.label_ends(causes, cause_labels(shares))


def _pace_panel(axes: Axes, scaling: Scaling) -> list[style.EndLabel]:
    num_csx = [point.num_csx for point in scaling.points]
    emulated = [point.emulated.samples_per_s for point in scaling.points]
    measured = [point.measured.samples_per_s for point in scaling.points]
    ideal = ideal_rates(num_csx, emulated)
    axes.set_title("Samples per second", color=style.FAINT_INK)
    counts_axis(axes, f"{scaling.run.system} systems", num_csx)
    spans_decades = max(ideal + measured) > 100 * min(emulated + measured)
    rate_axis(axes, (1.0,) if spans_decades else (1.0, 2.0, 5.0))
    dots: dict[str, Any] = {"marker": "o", "markersize": 7, "markeredgecolor": "white"}
    ideal_labels = draw_ideal(axes, num_csx, ideal)
    axes.plot(num_csx, emulated, color=style.BLUE, **dots)
    axes.plot(num_csx, measured, color=style.VERMILION, **dots)
    return [
        *ideal_labels,
        style.EndLabel(emulated[-1], "emulated", style.BLUE),
        style.EndLabel(measured[-1], "measured here", style.VERMILION),
    ]


def _causes_panel(axes: Axes, scaling: Scaling) -> None:
    axes.set_title("Where an emulated step goes", color=style.FAINT_INK)
    axes.set_xlabel(f"{scaling.run.system} systems")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xticks(range(len(scaling.points)), [f"{p.num_csx:,}" for p in scaling.points])
    axes.tick_params(axis="x", length=0)
    for place, point in enumerate(scaling.points):
        bottom = 0.0
        for cause, share in point.emulated.attribution_ps.shares().items():
            axes.bar(
                place,
                share,
                0.66,
                bottom,
                color=CAUSE_COLORS[cause],
                edgecolor="white",
                linewidth=0.6,
            )
            bottom += share
        axes.annotate(
            format_ps(point.emulated.step_ps),
            (place, 1.0),
            (0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=9,
        )
    axes.set_ylim(0.0, 1.08)
    slack = max(0, 3 - len(scaling.points)) / 2
    axes.set_xlim(-0.55 - slack, len(scaling.points) - 0.45 + slack)
