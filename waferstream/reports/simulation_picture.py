"""The picture of a simulation. Import late: matplotlib takes its time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from timing.attribution import Attribution
from waferstream.reports import style
from waferstream.reports.causes import CAUSE_COLORS, cause_labels
from waferstream.reports.error_bars import ErrorBar
from waferstream.reports.pace import counts_axis, draw_ideal, ideal_rates, rate_axis
from wsc.core.units import format_rate

_MOST_DOTS = 24  # more points than this are a line
_FAINT = 0.25  # of error bars behind the curve


class SimulatedPace(NamedTuple):
    """Pace of so many systems, and where the time of a step goes."""

    num_csx: int
    samples_per_s: float
    attribution: Attribution


def simulation_picture(
    path: Path, title: str, points: Sequence[SimulatedPace], error_bar: ErrorBar | None
) -> None:
    """Draw pace against ideal, and the shares of a step, both over the number of systems.

    Bars, or a band, show where a measured pace would lie nine times out of ten.
    """
    with style.picture(path, title, 11.0, 4.8) as figure:
        pace, causes = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
        labels = _pace(pace, points, error_bar)
        shares = _causes(causes, points)
        figure.draw_without_rendering()
        style.label_ends(pace, labels)
        style.label_ends(causes, shares)


def _pace(
    axes: Axes, points: Sequence[SimulatedPace], error_bar: ErrorBar | None
) -> list[style.EndLabel]:
    counts = [point.num_csx for point in points]
    rates = [point.samples_per_s for point in points]
    bars = "" if error_bar is None else "; bars: 9 of 10 published runs"
    axes.set_title(f"Samples per second, emulated{bars}", color=style.FAINT_INK)
    counts_axis(axes, "CS systems", counts)
    rate_axis(axes, (1.0, 2.0, 5.0))
    dots: dict[str, Any] = {"marker": "o", "markersize": 6, "markeredgecolor": "white"}
    ideal = draw_ideal(axes, counts, ideal_rates(counts, rates))
    has_dots = len(points) <= _MOST_DOTS
    if error_bar is not None:
        low, high = zip(*map(error_bar.around, rates), strict=True)
        if has_dots:
            axes.vlines(counts, low, high, color=style.BLUE, alpha=_FAINT, linewidth=6)
        else:
            axes.fill_between(counts, low, high, color=style.BLUE, alpha=_FAINT, linewidth=0)
    axes.plot(counts, rates, color=style.BLUE, **(dots if has_dots else {}))
    return [*ideal, style.EndLabel(rates[-1], format_rate(rates[-1]), style.BLUE)]


def _causes(axes: Axes, points: Sequence[SimulatedPace]) -> list[style.EndLabel]:
    counts: list[float] = [point.num_csx for point in points]
    shares = [point.attribution.shares() for point in points]
    axes.set_title("Where a step goes", color=style.FAINT_INK)
    counts_axis(axes, "CS systems", [point.num_csx for point in points])
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylim(0.0, 1.0)
    if len(counts) == 1:  # an area needs a width
        counts, shares = [counts[0] * 2**-0.5, counts[0] * 2**0.5], shares * 2
    bottom = [0.0] * len(shares)
    for cause, color in CAUSE_COLORS.items():
        top = [below + each[cause] for below, each in zip(bottom, shares, strict=True)]
        axes.fill_between(counts, bottom, top, color=color, edgecolor="white", linewidth=0.6)
        bottom = top
    return cause_labels(shares)
