"""Picture of the losses of a run.

matplotlib takes long to import, so import this module late.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from waferstream.reports import style
from waferstream.reports.run.summary import Loss

_SMOOTH_FROM = 100  # a curve of more steps is noisy


def loss_picture(path: Path, train: Sequence[Loss], evaluation: Sequence[Loss], title: str) -> None:
    """Draw training and evaluation losses over steps, as PNG; either may be empty.

    Losses that are not finite are left out. A long training curve is drawn twice: faintly as it is,
    and smoothed.
    """
    curve = _finite(train)
    note = " (pale: each training step, dark: smoothed)" if len(curve) > _SMOOTH_FROM else ""
    with style.picture(path, title, 8.0, 4.5) as figure:
        axes = figure.add_subplot()
        axes.set_title(f"Loss{note}", color=style.FAINT_INK)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.margins(x=0.02)
        labels = [*_train_curve(axes, curve), *_eval_curve(axes, _finite(evaluation))]
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
    """Return the double exponential mean, which does not lag behind a trend (Mulloy 1994)."""
    once = _exponential_mean(values)
    twice = _exponential_mean(once)
    return [2 * first - second for first, second in zip(once, twice, strict=True)]


def _exponential_mean(values: Sequence[float]) -> list[float]:
    """Return the exponential mean over a thirtieth of the values, without bias at the start."""
    keep = 1 - 30 / len(values)
    means, total, weight = [], 0.0, 0.0
    for value in values:
        total, weight = keep * total + value, keep * weight + 1
        means.append(total / weight)
    return means
