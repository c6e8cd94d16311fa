"""Runs side by side: their losses in one picture, their keys and figures in one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import MaxNLocator

from waferstream.reports import style
from waferstream.reports.run.kept import KeptRun, differing_keys

_COLORS = (style.BLUE, style.VERMILION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY)


def compared(runs: Sequence[KeptRun]) -> list[dict[str, Any]]:
    """Return a row for each figure and each key that differs, with a column for each run."""
    figures = [run.figures() for run in runs]
    names = dict.fromkeys(name for each in figures for name in each)
    rows: list[tuple[str, list[Any]]] = [
        (name.lower(), [each.get(name, "") for each in figures]) for name in names
    ]
    rows += differing_keys(runs).items()
    return [
        {"": key, **{run.name: value for run, value in zip(runs, values, strict=True)}}
        for key, values in rows
    ]


def losses_picture(path: Path, runs: Sequence[KeptRun]) -> None:
    """Draw the losses of runs over their steps, as PNG, SVG or PDF."""
    with style.picture(path, "Losses of runs", 8.0, 4.5) as figure:
        axes = figure.add_subplot()
        axes.set_title("Training (lines) and evaluation (dots)", color=style.FAINT_INK)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        labels = []
        for index, run in enumerate(runs):
            color = _COLORS[index % len(_COLORS)]
            curve = _finite(run.summary.train if run.summary else ())
            if curve:
                axes.plot(*zip(*curve, strict=True), color=color)
                labels.append(style.EndLabel(curve[-1][1], run.name, color))
            evaluations = run.summary.eval if run.summary else ()
            if dots := _finite([(step, loss) for step, loss, _ in evaluations]):
                axes.plot(*zip(*dots, strict=True), color=color, marker="o", linestyle="")
        style.lay_out(figure)
        style.label_ends(axes, labels)


def _finite(losses: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    return [(step, loss) for step, loss in losses if math.isfinite(loss)]
