"""Our pace beside that of GPU clusters. Import late: matplotlib takes its time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from waferstream.reports import style
from waferstream.reports.pace import counts_axis, rate_axis

_COLORS = (style.GREEN, style.VERMILION, style.PURPLE)
_DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))


class PaceCurve(NamedTuple):
    """Samples per second over numbers of systems or GPUs; both empty where nothing fits."""

    kind: str  # of machine: one colour each
    way: str  # of training: one pattern of dashes each
    counts: Sequence[int]
    samples_per_s: Sequence[float]


def gpu_picture(
    path: Path, title: str, note: str, ours: PaceCurve, gpus: Sequence[PaceCurve]
) -> None:
    """Draw all curves over one axis, ours boldly, with ``note`` below."""
    kinds = list(dict.fromkeys(curve.kind for curve in gpus))
    ways = list(dict.fromkeys(curve.way for curve in gpus))
    with style.picture(path, title, 9.0, 5.2) as figure:
        axes = figure.add_subplot()
        axes.set_title("Samples per second", color=style.FAINT_INK)
        _logarithmic(axes, [count for curve in (ours, *gpus) for count in curve.counts])
        labels = [_draw(axes, ours, style.BLUE, marker="o", markersize=7, markeredgecolor="white")]
        for curve in gpus:
            if curve.counts:
                color = _COLORS[kinds.index(curve.kind) % len(_COLORS)]
                dashes = _DASHES[ways.index(curve.way) % len(_DASHES)]
                labels.append(_draw(axes, curve, color, linewidth=1.4, linestyle=dashes))
        figure.supxlabel(note, fontsize=8, color=style.FAINT_INK, x=0.02, ha="left", wrap=True)
        figure.draw_without_rendering()
        style.label_ends(axes, labels)


def _draw(axes: Axes, curve: PaceCurve, color: str, **look: Any) -> style.EndLabel:
    if len(curve.counts) == 1:  # a line needs two ends
        look["marker"] = "o"
    axes.plot(curve.counts, curve.samples_per_s, color=color, **look)
    return style.EndLabel(curve.samples_per_s[-1], f"{curve.kind} {curve.way}".strip(), color)


def _logarithmic(axes: Axes, counts: Sequence[int]) -> None:
    powers = [1 << power for power in range(max(counts).bit_length())]
    counts_axis(axes, "systems or GPUs", powers)
    rate_axis(axes)
