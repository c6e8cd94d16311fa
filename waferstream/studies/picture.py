"""The picture of a study: a curve with its band and its ideal line for each combination of keys.

The axis below is the number of systems, or the first key with several numbers. Colours follow the
first other key, dashes the others, and always strong and weak scaling. Crosses at the foot are
points that cannot be. matplotlib takes long to import, so import this module late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from waferstream.core.errors import ConfigError
from waferstream.core.units import format_short
from waferstream.machine.intervals import SHARES, Interval
from waferstream.reports import style
from waferstream.reports.curve.picture import BAND_ALPHA, draw_band, draw_shares, rate_axis
from waferstream.reports.curve.result import CurvePoint
from waferstream.studies.result import StudyResult, StudyRow, rate_of, series_of

_DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1, 2)))
_MOST_CURVES = 24
_MOST_STACKS = 4  # panels of causes side by side
_MOST_TICKS, _MOST_TICKS_OF_CAUSES = 12, 6
_MOST_DOTS = 24  # more points are drawn as a line without dots
_LOGARITHMIC = 8  # an axis over so large a factor is logarithmic
_VISIBLE_SHARE = 0.005  # a smaller share of a step is too thin to see


def study_picture(path: Path, result: StudyResult, width: style.Width = "page") -> None:
    """Draw the rates of a study and, below, what its steps take their time for.

    A picture as wide as a column has the rates alone.

    Raises:
        ConfigError: There are too many curves to tell apart, or the width is no known one.
    """
    if width not in style.WIDTHS:
        raise ConfigError(
            "the width of a picture must be a known one",
            code="not-one-of",
            where="--width",
            value=width,
            rule=" or ".join(style.WIDTHS),
        )
    below = _Below.of(result)
    curves = _curves(result, below.key)
    stacked = [] if width == "column" else [each for each in curves if each.feasible()]
    stacked = stacked if len(stacked) <= _MOST_STACKS else []
    inches, legend_rows = style.WIDTHS[width], -(-len(curves) // 2)
    height = (0.64 if stacked else 0.62) * inches + 0.16 * legend_rows
    is_for_paper = width != "screen"
    with style.picture(path, result.title, inches, height, is_for_paper=is_for_paper) as figure:
        rates, panels = _panels(figure, len(stacked))
        _draw_rates(rates, result, below, curves)
        for panel, curve in zip(panels, stacked, strict=True):
            _draw_causes(panel, curve, below)
        if panels:
            _cause_legend(panels, stacked)


@dataclass(frozen=True)
class _Below:
    """The key along the axis below: systems, else the first with several numbers, else the first.

    ``words`` are its values where they are no numbers, in the order of the grid.
    """

    key: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, result: StudyResult) -> _Below:
        values = {name: [row.values[name] for row in result.rows] for name in result.varying}
        numeric = [
            name
            for name, given in values.items()
            if all(isinstance(value, int | float) for value in given)
        ]
        if "num_csx" in numeric or not values:
            return cls("num_csx", ())
        if numeric:
            return cls(numeric[0], ())
        first = result.varying[0]
        return cls(first, tuple(map(str, dict.fromkeys(values[first]))))

    @property
    def label(self) -> str:
        return "systems" if self.key == "num_csx" else self.key

    def place(self, row: StudyRow) -> float:
        """Return where a row is along the axis."""
        value = row.num_csx if self.key == "num_csx" else row.values[self.key]
        return float(self.words.index(str(value))) if self.words else float(str(value))

    def said(self, row: StudyRow) -> str:
        """Return the text of a row's tick."""
        place = self.place(row)
        return self.words[int(place)] if self.words else f"{place:,.6g}"

    def draw(self, axes: Axes, rows: Sequence[StudyRow]) -> None:
        """Label the axis, with a tick at each value as far as there is room."""
        texts = dict(sorted({self.place(row): self.said(row) for row in rows}.items()))
        places = list(texts)
        if not self.words and places[0] > 0 and places[-1] / places[0] >= _LOGARITHMIC:
            axes.set_xscale("log", base=2)
        shown = places[:: -(-len(places) // _MOST_TICKS)]
        axes.set_xlabel(self.label)
        axes.set_xticks(shown, [texts[place] for place in shown])
        axes.minorticks_off()


@dataclass(frozen=True)
class _Curve:
    """The rows of one combination of the other keys, and how they look."""

    name: str
    rows: Sequence[StudyRow]
    color: str
    dashes: Any

    def feasible(self) -> list[tuple[StudyRow, CurvePoint]]:
        """Return the rows that have numbers."""
        return [(row, row.point) for row in self.rows if isinstance(row.point, CurvePoint)]


def _curves(result: StudyResult, below: str) -> list[_Curve]:
    """Return the curves in the order of the grid."""
    others = [name for name in result.varying if name != below]
    colored = next((name for name in others if name != "scaling"), "scaling")
    dashed = [name for name in others if name != colored or name == "scaling"]
    all_rows = list(series_of(result.rows, below).values())
    if len(all_rows) > _MOST_CURVES:
        raise ConfigError(
            "the study has too many curves to tell apart",
            code="too-many-curves",
            where=", ".join(others),
            value=len(all_rows),
            rule=f"at most {_MOST_CURVES}",
            remedy="draw fewer values; .csv, .parquet and .json hold them all",
        )
    tones, looks, found = [], [], []
    for rows in all_rows:
        values = rows[0].values
        tone, look = values.get(colored), [values[name] for name in dashed]
        tones += [] if tone in tones else [tone]
        looks += [] if look in looks else [look]
        color = style.SERIES[tones.index(tone) % len(style.SERIES)]
        dashes = _DASHES[looks.index(look) % len(_DASHES)]
        named = ", ".join(_said(name, values[name]) for name in others)
        found.append(_Curve(named or rows[0].machine, rows, color, dashes))
    return found


def _said(name: str, value: object) -> str:
    """Return a value as a legend names it: a word alone, a number with the end of its key."""
    return value if isinstance(value, str) else f"{name.rpartition('.')[2]} {value}"


def _panels(figure: Figure, num_stacked: int) -> tuple[Axes, list[Axes]]:
    """Return the axes of the rates, and a row of axes below."""
    if not num_stacked:
        return figure.add_subplot(), []
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.5, 1.0))
    above, below = parts
    return above.add_subplot(), list(below.subplots(1, num_stacked, squeeze=False)[0])


def _draw_rates(axes: Axes, result: StudyResult, below: _Below, curves: Sequence[_Curve]) -> None:
    """Draw all curves over one axis, with a legend above."""
    drawn = [_draw_curve(axes, curve, below) for curve in curves]
    handles = [_without_marker(line) for line in drawn if line is not None]
    below.draw(axes, result.rows)
    low, high = axes.dataLim.intervaly
    rate_axis(axes, (1.0,) if high > 100 * low else (1.0, 2.0, 5.0))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: format_short(rate)))
    axes.set_ylabel(result.unit)
    ideal = ["dotted: ideal"] if below.key == "num_csx" and len(result.rows) > len(curves) else []
    notes = [*ideal, f"bands: {' and '.join(SHARES.values())}"]
    axes.set_title("; ".join(notes), color=style.FAINT_INK, loc="right")
    if len(handles) > 1:
        axes.figure.legend(
            handles=handles, loc="outside upper left", ncols=2, frameon=False, handlelength=3
        )


def _draw_curve(axes: Axes, curve: _Curve, below: _Below) -> Line2D | None:
    """Draw a curve over band and ideal line, with its refused points; return its line, if any."""
    refused = [below.place(row) for row in curve.rows if not isinstance(row.point, CurvePoint)]
    foot = axes.get_xaxis_transform()
    axes.plot(refused, [0.03] * len(refused), "x", color=curve.color, transform=foot)
    points = curve.feasible()
    if not points:
        return None
    xs = [below.place(row) for row, _ in points]
    rates = [rate_of(point) for _, point in points]
    for share in SHARES:
        ranges = {
            place: point.interval.around(rate, share)
            for place, rate, (_, point) in zip(xs, rates, points, strict=True)
            if isinstance(point.interval, Interval)
        }
        draw_band(axes, ranges, curve.color, BAND_ALPHA)
    if below.key == "num_csx" and len(xs) > 1:
        ideal = [rate / point.efficiency for rate, (_, point) in zip(rates, points, strict=True)]
        axes.plot(xs, ideal, color=curve.color, linewidth=0.9, linestyle=(0, (1, 1.5)))
    look = {"color": curve.color, "linestyle": curve.dashes, "label": curve.name}
    (line,) = axes.plot(xs, rates, marker="o" if len(xs) <= _MOST_DOTS else None, **look)
    return line


def _without_marker(line: Line2D) -> Line2D:
    """Return what stands for a curve in a legend, where its dashes must be seen."""
    return Line2D(
        [], [], color=line.get_color(), linestyle=line.get_linestyle(), label=line.get_label()
    )


def _draw_causes(axes: Axes, curve: _Curve, below: _Below) -> None:
    """Draw the causes of the step time at each point of a curve, side by side."""
    points = curve.feasible()
    shares = [point.emulated.attribution_ps.shares() for _, point in points]
    draw_shares(axes, [index - 0.5 for index in range(len(points) + 1)], shares)
    axes.set_title(curve.name, color=style.FAINT_INK)
    axes.set_xlabel(below.label)
    named = [below.said(row) for row, _ in points]
    step = -(-len(named) // _MOST_TICKS_OF_CAUSES)
    axes.set_xticks(range(0, len(named), step), named[::step])
    axes.set_xlim(-0.5, len(points) - 0.5)
    axes.set_ylim(0.0, 1.0)


def _cause_legend(panels: Sequence[Axes], curves: Sequence[_Curve]) -> None:
    """Name the causes that are visible in any stack, below all axes."""
    shares = [
        point.emulated.attribution_ps.shares() for curve in curves for _, point in curve.feasible()
    ]
    visible = [
        Line2D([], [], color=color, linewidth=6, label=cause)
        for cause, color in style.CAUSE_COLORS.items()
        if any(each[cause] >= _VISIBLE_SHARE for each in shares)
    ]
    panels[0].figure.legend(
        handles=visible, loc="outside lower left", ncols=len(visible), frameon=False
    )
