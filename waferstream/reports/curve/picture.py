"""Pictures of curves: throughput and the causes of step time, and a comparison with GPU clusters.

matplotlib takes long to import, so import this module late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import cycle, pairwise
from math import log2, sqrt
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from waferstream.baselines.gpu.curve import Kind
from waferstream.core.units import format_ps, format_rate
from waferstream.machine.attribution import Attribution
from waferstream.machine.intervals import SHARES, Interval, Share
from waferstream.reports import style
from waferstream.reports.curve.result import (
    GPU_STRATEGIES,
    CurvePoint,
    CurveResult,
    GpuComparison,
    GpuCurve,
)

_GPU_COLORS = (style.GREEN, style.VERMILION, style.PURPLE)
_OTHER_COLORS = (style.PURPLE, style.GREEN, style.ORANGE, style.SKY)  # of machines compared
_DASHES: Mapping[Kind, Any] = {
    "ddp": "solid",
    "zero3": (0, (5, 2)),
    "tensor+pipeline": (0, (1.5, 1.5)),
}
_DASH_NAMES: Mapping[Kind, str] = {
    "ddp": "solid",
    "zero3": "dashed",
    "tensor+pipeline": "dotted",
}
_VISIBLE_SHARE = 0.005  # a smaller share of a step is too thin to see
_MOST_DOTS = 24  # more points are drawn as a line without dots
_MOST_TICKS = 8  # of more counts, only powers of two get a tick
_DIGIT_INCHES = 0.077  # width of a digit of 10 points
_AXES_SHARE = 0.8  # of the width of new axes that remains beside labels and margins
_NOTE_WIDTH = 135  # characters of 8 points across 9 inches
_STEP_INCHES = 0.62  # width of a step time above its bar
BAND_ALPHA = 0.15
"""Opacity of each of two bands that lie over one another."""
_GPU_BAND_ALPHA = 0.07  # of the wider one, of many curves
DOTS: dict[str, Any] = {"marker": "o", "markersize": 7, "markeredgecolor": "white"}


def curve_picture(path: Path, title: str, result: CurveResult) -> None:
    """Draw throughput, and the shares of emulated step time, over the number of systems, as PNG."""
    with style.picture(path, title, 11.0, 4.8) as figure:
        rates, causes = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
        rate_labels = draw_rates(rates, result)
        cause_labels = _draw_causes(causes, result)
        style.lay_out(figure)
        style.label_ends(rates, rate_labels)
        style.label_ends(causes, cause_labels)


def gpu_picture(path: Path, title: str, result: CurveResult, gpus: GpuComparison) -> None:
    """Draw emulated throughput and that of GPU clusters over one axis, with the note below."""
    kinds = list(dict.fromkeys(curve.gpu for curve in gpus.curves))
    counts = [point.num_csx for point in result.points]
    rates = [point.emulated.samples_per_s for point in result.points]
    drawn = [curve for curve in gpus.curves if curve.fitting]
    most = max(*counts, *(point.gpus for curve in drawn for point in curve.fitting), 1)
    with style.picture(path, title, 9.0, 5.2) as figure:
        axes = figure.add_subplot()
        axes.set_title(
            f"Samples per second, 90 % intervals{_dashes_text(drawn)}; thin: extrapolated",
            color=style.FAINT_INK,
        )
        counts_axis(axes, "systems or GPUs", [1 << power for power in range(most.bit_length())])
        rate_axis(axes)
        axes.plot(counts, rates, color=style.BLUE, **_dots(counts))
        _draw_intervals(axes, result.points, "nine_tenths", style.BLUE)
        labels = [style.EndLabel(rates[-1], f"{result.system}, emulated", style.BLUE)]
        for curve in drawn:
            color = _GPU_COLORS[kinds.index(curve.gpu) % len(_GPU_COLORS)]
            labels.append(_draw_gpu_curve(axes, curve, color))
        note = fill(gpus.note, _NOTE_WIDTH)  # matplotlib would measure each word, several times
        figure.supxlabel(note, fontsize=8, color=style.FAINT_INK, x=0.02, ha="left")
        style.lay_out(figure)
        style.label_ends(axes, labels)


def _dashes_text(curves: Sequence[GpuCurve]) -> str:
    """Return which dashes stand for which strategy, of those that are drawn."""
    kinds = [kind for kind in _DASHES if any(curve.kind == kind for curve in curves)]
    named = (f"{_DASH_NAMES[kind]}: {GPU_STRATEGIES[kind]}" for kind in kinds)
    return "".join(f"; {text}" for text in named)


def _draw_gpu_curve(axes: Axes, curve: GpuCurve, color: str) -> style.EndLabel:
    rates = [point.samples_per_s for point in curve.fitting]
    for points, width in ((curve.fitting, 0.8), (curve.published, 1.8)):
        if points:
            axes.plot(
                [point.gpus for point in points],
                [point.samples_per_s for point in points],
                color=color,
                linewidth=width,
                linestyle=_DASHES[curve.kind],
                marker="o" if len(points) == 1 else None,  # a line needs two points
            )
    ranges = {
        point.gpus: interval.around(point.samples_per_s)
        for point, interval in zip(curve.points, curve.intervals, strict=True)
        if point.fits and isinstance(interval, Interval)
    }
    draw_band(axes, ranges, color, _GPU_BAND_ALPHA)
    return style.EndLabel(rates[-1], curve.name, color)


def draw_rates(axes: Axes, result: CurveResult) -> list[style.EndLabel]:
    """Draw throughput with its ideal line and band, of each machine; return the labels of curves.

    Measured rates, of the host, have neither.
    """
    counts = [point.num_csx for point in result.points]
    measured = [p.run.measured.samples_per_s for p in result.points if p.run is not None]
    curves = _emulated_curves(result)
    has_bands = any(isinstance(p.interval, Interval) for each, _, _ in curves for p in each.points)
    bands = f"; bands: {' and '.join(SHARES.values())} intervals" if has_bands else ""
    axes.set_title(f"Samples per second{bands}; dashed: ideal", color=style.FAINT_INK)
    counts_axis(axes, "systems" if result.others else f"{result.system} systems", counts)
    every = [point.emulated.samples_per_s for each, _, _ in curves for point in each.points]
    spans_decades = max([*every, *measured]) > 100 * min([*every, *measured])
    rate_axis(axes, (1.0,) if spans_decades else (1.0, 2.0, 5.0))
    labels = [_draw_emulated(axes, *curve) for curve in curves]
    if measured:
        axes.plot(counts, measured, color=style.VERMILION, **_dots(counts))
        named = f"measured {format_rate(measured[-1])}"
        labels.append(style.EndLabel(measured[-1], named, style.VERMILION))
    return labels


def _emulated_curves(result: CurveResult) -> list[tuple[CurveResult, str, str]]:
    """Return a curve and those beside it, with their names and colours."""
    colors = cycle(_OTHER_COLORS)
    others = [(other, other.label, next(colors)) for other in result.others]
    return [(result, result.label if others else "emulated", style.BLUE), *others]


def _draw_emulated(axes: Axes, curve: CurveResult, name: str, color: str) -> style.EndLabel:
    """Draw the rates of one machine over its ideal line and its band."""
    counts = [point.num_csx for point in curve.points]
    rates = [point.emulated.samples_per_s for point in curve.points]
    if len(counts) > 1:
        ideal = [rates[0] * count / counts[0] for count in counts]
        axes.plot(counts, ideal, color=color, alpha=0.6, linewidth=1.0, linestyle=(0, (4, 3)))
    for share in SHARES:
        _draw_intervals(axes, curve.points, share, color)
    axes.plot(counts, rates, color=color, **_dots(counts))
    return style.EndLabel(rates[-1], f"{name} {format_rate(rates[-1])}", color)


def _dots(counts: Sequence[int]) -> dict[str, Any]:
    """Return the style of dots; none for many points."""
    return DOTS if len(counts) <= _MOST_DOTS else {}


def _draw_intervals(axes: Axes, points: Sequence[CurvePoint], share: Share, color: str) -> None:
    """Draw the known intervals of a curve as a band behind its line."""
    ranges = {
        point.num_csx: point.interval.around(point.emulated.samples_per_s, share)
        for point in points
        if isinstance(point.interval, Interval)
    }
    draw_band(axes, ranges, color)


def draw_band(
    axes: Axes,
    ranges: Mapping[float, tuple[float, float]] | Mapping[int, tuple[float, float]],
    color: str,
    alpha: float = BAND_ALPHA,
) -> None:
    """Draw ranges over an axis as a band with edges; that of a single point as a bar."""
    if not ranges:
        return
    low, high = zip(*ranges.values(), strict=True)
    if len(ranges) == 1:
        axes.vlines(list(ranges), low, high, linewidth=6, color=color, alpha=2 * alpha)
        return
    axes.fill_between(list(ranges), low, high, linewidth=0, color=color, alpha=alpha)
    for edge in (low, high):
        axes.plot(list(ranges), edge, color=color, alpha=min(1.0, 3 * alpha), linewidth=0.7)


def _draw_causes(axes: Axes, result: CurveResult) -> list[style.EndLabel]:
    """Draw one stack of shares for each point; bars meet halfway between neighbouring counts."""
    points = result.points
    counts = [point.num_csx for point in points]
    shares = [point.emulated.attribution_ps.shares() for point in points]
    edges = _bar_edges(counts)
    axes.set_title("Emulated step time by cause", color=style.FAINT_INK)
    counts_axis(axes, f"{result.system} systems", counts)
    draw_shares(axes, edges, shares)
    if len(points) <= _MOST_DOTS:
        axes.vlines(edges[1:-1], 0.0, 1.0, color="white", linewidth=0.6)
    axes.set_xlim(edges[0], edges[-1])
    narrowest = min(log2(right / left) for left, right in pairwise(edges))
    has_times = narrowest * _axes_inches(axes) / log2(edges[-1] / edges[0]) > _STEP_INCHES
    axes.set_ylim(0.0, 1.08 if has_times else 1.0)
    if has_times:
        _write_step_times(axes, points)
    return _cause_labels(shares)


def draw_shares(axes: Axes, edges: Sequence[float], shares: Sequence[Mapping[str, float]]) -> None:
    """Draw a stack of the shares of causes between each two edges."""
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    bottom = [0.0] * len(shares)
    for cause, color in style.CAUSE_COLORS.items():
        top = [below + each[cause] for below, each in zip(bottom, shares, strict=True)]
        axes.stairs(top, edges, baseline=bottom, fill=True, color=color, linewidth=0)
        bottom = top


def _write_step_times(axes: Axes, points: Sequence[CurvePoint]) -> None:
    for point in points:
        axes.annotate(
            format_ps(point.emulated.step_ps),
            (point.num_csx, 1.0),
            (0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=9,
        )


def _bar_edges(counts: Sequence[int]) -> list[float]:
    """Return the edges of adjacent bars: geometric means of neighbouring counts."""
    inner = [sqrt(left * right) for left, right in pairwise(counts)]
    if not inner:
        return [counts[0] / sqrt(2), counts[0] * sqrt(2)]
    return [counts[0] ** 2 / inner[0], *inner, counts[-1] ** 2 / inner[-1]]


def _cause_labels(shares: Sequence[Mapping[str, float]]) -> list[style.EndLabel]:
    """Return labels beside the last stack, for causes that are visible in any stack."""
    labels, bottom = [], 0.0
    for cause in (field.name for field in fields(Attribution)):
        share = shares[-1][cause]
        if any(each[cause] >= _VISIBLE_SHARE for each in shares):
            color = style.FAINT_INK if cause == "idle" else style.CAUSE_COLORS[cause]
            labels.append(style.EndLabel(bottom + share / 2, cause, color))
        bottom += share
    return labels


def rate_axis(axes: Axes, ticks: Sequence[float] = (1.0,)) -> None:
    """Make the y axis logarithmic, with ticks at these multiples of powers of ten."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: format_rate(rate)))
    axes.yaxis.set_minor_locator(NullLocator())


def counts_axis(axes: Axes, label: str, counts: Sequence[int]) -> None:
    """Make the x axis logarithmic, with a tick for each of the counts that has space."""
    ticks = _ticks(counts, _DIGIT_INCHES / _axes_inches(axes))
    axes.set_xlabel(label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _axes_inches(axes: Axes) -> float:
    """Return the width that axes will have once labels and margins are laid out."""
    return float(_AXES_SHARE * axes.get_window_extent().width / axes.figure.dpi)


def _ticks(counts: Sequence[int], digit: float) -> list[int]:
    """Choose ticks that do not touch: last, first, powers of two, then others if counts are few.

    Args:
        digit: Width of a digit as a fraction of the axis.
    """
    octaves = log2(counts[-1] / counts[0])

    def are_apart(one: int, other: int) -> bool:
        width = digit * (len(f"{one:,}{other:,}") + 1) / 2
        return abs(log2(one / other)) > width * octaves

    powers = (count for count in counts if count.bit_count() == 1)
    others = counts if len(counts) <= _MOST_TICKS else ()
    ticks: list[int] = []
    for count in (counts[-1], counts[0], *powers, *others):
        if all(are_apart(count, tick) for tick in ticks):
            ticks.append(count)
    return sorted(ticks)
