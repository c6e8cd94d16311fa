"""Draw predicted against published values, and the error of every row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator, PercentFormatter

from validation.families.prediction import Compared
from validation.report.summary import Errors, Mark, mark_of, validated
from validation.report.tables import percent
from waferstream.reports import style

_COLORS = (
    style.BLUE,
    style.ORANGE,
    style.GREEN,
    style.VERMILION,
    style.PURPLE,
    style.SKY,
    style.INK,
)
_MARKERS = ("o", "D", "^")  # for the first, second and third use of a colour
_BAND = 0.10
_FARTHEST = 0.4  # larger errors are drawn as arrows at the edge
_OFFSETS = (0.0, 0.16, -0.16, 0.3, -0.3)  # vertical, so that neighbours do not overlap
_SIZE: dict[Mark, float] = {
    "validation": 30.0,
    "calibration": 26.0,
    "unused": 26.0,
    "context": 9.0,
}
_HOLLOW: dict[Mark, str] = {"calibration": style.LIGHT, "unused": "white"}  # colours inside


def fidelity_picture(
    path: Path, by_family: Mapping[str, Sequence[Compared]], calibrated: Collection[str]
) -> None:
    """Draw all compared rows by mark: validation filled, calibration light, context as dots.

    Calibration rows that are not among ``calibrated`` are open: no fitted constant rests on them.
    """
    height = max(5.2, 1.8 + 0.36 * len(by_family))
    with style.picture(path, "Predicted against published", 12.0, height) as figure:
        values, errors = figure.subplots(1, 2, width_ratios=(1.0, 1.15))
        _draw_values(values, by_family, calibrated)
        _draw_errors(errors, by_family, calibrated)


def _look(index: int) -> tuple[str, str]:
    """Return colour and marker of a family."""
    rounds, color = divmod(index, len(_COLORS))
    return _COLORS[color], _MARKERS[rounds % len(_MARKERS)]


def _draw_values(
    axes: Axes, by_family: Mapping[str, Sequence[Compared]], calibrated: Collection[str]
) -> None:
    axes.set_title("Every row, each in its own unit", color=style.FAINT_INK)
    axes.set(xscale="log", yscale="log", xlabel="published", ylabel="predicted")
    axes.grid(visible=True, axis="both")
    for index, compared in enumerate(by_family.values()):
        for mark in _SIZE:
            marked = [one for one in compared if mark_of(one.row, calibrated) == mark]
            published = [one.published for one in marked]
            _scatter(axes, published, [one.predicted for one in marked], index, mark)
    low, high = axes.get_xlim()
    axes.fill_between(
        (low, high),
        ((1 - _BAND) * low, (1 - _BAND) * high),
        ((1 + _BAND) * low, (1 + _BAND) * high),
        color=style.LIGHT,
        linewidth=0,
        zorder=0,
    )
    axes.plot((low, high), (low, high), color=style.FAINT_INK, linewidth=0.8, zorder=1)
    axes.set(xlim=(low, high), ylim=(low, high))
    axes.legend(handles=_uses(), frameon=False, loc="upper left", labelcolor=style.FAINT_INK)


def _draw_errors(
    axes: Axes, by_family: Mapping[str, Sequence[Compared]], calibrated: Collection[str]
) -> None:
    axes.set_title("Error; right: mean of validation rows (number of rows)", color=style.FAINT_INK)
    axes.axvspan(-_BAND, _BAND, color=style.LIGHT, linewidth=0, zorder=0)
    axes.axvline(0.0, color=style.FAINT_INK, linewidth=0.8, zorder=1)
    for index, (family, compared) in enumerate(by_family.items()):
        color, _ = _look(index)
        _strip(axes, compared, index, calibrated)
        axes.text(
            -_FARTHEST - 0.03, index, family, color=color, ha="right", va="center", weight="bold"
        )
        axes.text(_FARTHEST + 0.03, index, _mean(compared), color=color, va="center")
    axes.set(xlim=(-_FARTHEST - 0.01, _FARTHEST + 0.01), ylim=(len(by_family) - 0.4, -0.6))
    axes.set_yticks([])
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_locator(MultipleLocator(0.2))  # more labels would touch
    axes.xaxis.set_major_formatter(PercentFormatter(xmax=1, symbol=" %"))
    axes.set_xlabel("predicted over published, less one")


def _strip(
    axes: Axes, compared: Sequence[Compared], index: int, calibrated: Collection[str]
) -> None:
    ordered = sorted(compared, key=lambda one: one.error)
    heights = [index + _OFFSETS[rank % len(_OFFSETS)] for rank in range(len(ordered))]
    placed = list(zip(ordered, heights, strict=True))
    for mark in _SIZE:
        marked = [point for point in placed if mark_of(point[0].row, calibrated) == mark]
        for side, marker in ((0, None), (1, ">"), (-1, "<")):
            here = [point for point in marked if _side(point[0]) == side]
            errors = [side * _FARTHEST if side else one.error for one, _ in here]
            _scatter(axes, errors, [height for _, height in here], index, mark, marker)


def _side(one: Compared) -> int:
    """Return -1 or 1 for an error beyond the left or right edge, else 0."""
    return (one.error > _FARTHEST) - (one.error < -_FARTHEST)


def _scatter(
    axes: Axes,
    x: Sequence[float],
    y: Sequence[float],
    index: int,
    mark: Mark,
    marker: str | None = None,
) -> None:
    color, own_marker = _look(index)
    axes.scatter(
        x,
        y,
        s=_SIZE[mark],
        marker=marker or own_marker,
        facecolors=_HOLLOW.get(mark, color),
        edgecolors=color if mark in _HOLLOW else "white",
        linewidths=1.3 if mark in _HOLLOW else 0.5,
        zorder=4 if mark == "validation" else 3,
        clip_on=False,
    )


def _mean(compared: Sequence[Compared]) -> str:
    rows = validated(compared)
    return f"{percent(Errors.of(rows).mean)} ({len(rows)})" if rows else "no validation rows"


def _uses() -> list[Line2D]:
    return [
        _mark("validation, never fitted", style.FAINT_INK, 6.0),
        _mark("calibration", style.LIGHT, 5.5),
        _mark("calibration, unused", "white", 5.5),
        _mark("context", style.FAINT_INK, 3.0),
        Line2D([], [], label="±10 %", color=style.LIGHT, linewidth=6),
    ]


def _mark(label: str, face: str, size: float) -> Line2D:
    return Line2D(
        [],
        [],
        label=label,
        linestyle="",
        marker="o",
        markersize=size,
        markerfacecolor=face,
        markeredgecolor=style.FAINT_INK,
    )
