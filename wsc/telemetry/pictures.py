"""The pictures of a run and of a scaling experiment. Import late: matplotlib takes its time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator, PercentFormatter

from wsc.core.units import format_ps
from wsc.telemetry import style
from wsc.telemetry.scaling import Scaling
from wsc.telemetry.summary import Loss
from wsc.timing.attribution import Attribution

CAUSE_COLORS = {
    "compute": style.BLUE,
    "overhead": style.SKY,
    "straggler": style.VERMILION,
    "weights": style.ORANGE,
    "input": style.GREEN,
    "reduce": style.PURPLE,
    "idle": style.LIGHT,
}
"""One colour for each cause of wsc.timing.attribution."""

_SMOOTH_FROM = 100  # more steps than this make a noisy curve
_VISIBLE = 0.005  # a smaller share of a bar is too thin to see


def loss_picture(path: Path, train: Sequence[Loss], evaluation: Sequence[Loss], title: str) -> None:
    """Draw training and evaluation losses against steps; either may be empty.

    Losses that are not finite are left out. A long training curve is drawn twice: faintly as it is,
    boldly as its exponential mean.
    """
    with style.picture(path, title, 8.0, 4.5) as figure:
        axes = figure.add_subplot()
        axes.set_title("Loss", color=style.FAINT_INK)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.margins(x=0.02)
        labels = [*_train_curve(axes, _finite(train)), *_eval_curve(axes, _finite(evaluation))]
        figure.draw_without_rendering()
        style.label_ends(axes, labels)


def _finite(losses: Sequence[Loss]) -> list[Loss]:
    return [(step, loss) for step, loss in losses if math.isfinite(loss)]


def _train_curve(axes: Axes, losses: Sequence[Loss]) -> list[style.EndLabel]:
    if not losses:
        return []
    steps, values = zip(*losses, strict=True)
    if len(losses) > _SMOOTH_FROM:
        axes.plot(steps, values, color=style.BLUE, alpha=0.25, linewidth=1.0)
        values = tuple(_smooth(values))
    axes.plot(steps, values, color=style.BLUE, marker="o" if len(losses) == 1 else None)
    return [style.EndLabel(values[-1], f"train {values[-1]:.3f}", style.BLUE)]


def _eval_curve(axes: Axes, losses: Sequence[Loss]) -> list[style.EndLabel]:
    if not losses:
        return []
    steps, values = zip(*losses, strict=True)
    axes.plot(
        steps,
        values,
        color=style.VERMILION,
        linewidth=1.2,
        marker="o",
        markersize=6,
        markeredgecolor="white",
    )
    return [style.EndLabel(values[-1], f"eval {values[-1]:.3f}", style.VERMILION)]


def _smooth(values: Sequence[float]) -> list[float]:
    """The double exponential mean, which does not lag behind a trend (Mulloy 1994)."""
    once = _exponential_mean(values)
    twice = _exponential_mean(once)
    return [2 * first - second for first, second in zip(once, twice, strict=True)]


def _exponential_mean(values: Sequence[float]) -> list[float]:
    """With a memory of a thirtieth of the values, and without bias at the start."""
    keep = 1 - 30 / len(values)
    means, total, weight = [], 0.0, 0.0
    for value in values:
        total, weight = keep * total + value, keep * weight + 1
        means.append(total / weight)
    return means


def scaling_picture(path: Path, scaling: Scaling, title: str) -> None:
    """Draw the pace against the number of systems, and by cause where an emulated step goes."""
    width = 11.0 + 1.8 * max(0, len(scaling.points) - 6)
    with style.picture(path, title, width, 4.8) as figure:
        pace, causes = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
        labels = _pace_panel(pace, scaling)
        _causes_panel(causes, scaling)
        figure.draw_without_rendering()
        style.label_ends(pace, labels)
        style.label_ends(causes, _cause_labels(scaling))


def _pace_panel(axes: Axes, scaling: Scaling) -> list[style.EndLabel]:
    num_csx = [point.num_csx for point in scaling.points]
    emulated = [point.emulated.samples_per_s for point in scaling.points]
    measured = [point.measured.samples_per_s for point in scaling.points]
    ideal = [emulated[0] * count / num_csx[0] for count in num_csx]
    axes.set_title("Samples per second", color=style.FAINT_INK)
    axes.set_xlabel(f"{scaling.run.system} systems")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(num_csx, [str(count) for count in num_csx])
    axes.xaxis.set_minor_locator(NullLocator())
    spans_decades = max(ideal + measured) > 100 * min(emulated + measured)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if spans_decades else (1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{rate:,.6g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    dots: dict[str, Any] = {"marker": "o", "markersize": 7, "markeredgecolor": "white"}
    axes.plot(num_csx, ideal, color=style.FAINT_INK, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.plot(num_csx, emulated, color=style.BLUE, **dots)
    axes.plot(num_csx, measured, color=style.VERMILION, **dots)
    return [
        style.EndLabel(ideal[-1], "ideal", style.FAINT_INK),
        style.EndLabel(emulated[-1], "emulated", style.BLUE),
        style.EndLabel(measured[-1], "measured here", style.VERMILION),
    ]


def _causes_panel(axes: Axes, scaling: Scaling) -> None:
    axes.set_title("Where an emulated step goes", color=style.FAINT_INK)
    axes.set_xlabel(f"{scaling.run.system} systems")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xticks(range(len(scaling.points)), [str(p.num_csx) for p in scaling.points])
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


def _cause_labels(scaling: Scaling) -> list[style.EndLabel]:
    """Beside the last bar, the causes that can be seen in any bar."""
    shares = [point.emulated.attribution_ps.shares() for point in scaling.points]
    labels, bottom = [], 0.0
    for cause in (field.name for field in fields(Attribution)):
        share = shares[-1][cause]
        if any(each[cause] >= _VISIBLE for each in shares):
            color = style.FAINT_INK if cause == "idle" else CAUSE_COLORS[cause]
            labels.append(style.EndLabel(bottom + share / 2, cause, color))
        bottom += share
    return labels
