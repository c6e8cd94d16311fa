"""What pictures of a pace over numbers of systems have in common."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from waferstream.reports import style
from wsc.core.units import format_rate

_FEW = 8  # more numbers of systems than this are a range, of which powers of two tell enough
_DIGIT_INCHES = 0.077  # of 10 points
_USED = 0.8  # of the width of new axes, once labels and margins have theirs


def rate_axis(axes: Axes, ticks: Sequence[float] = (1.0,)) -> None:
    """Logarithmic, with numbers at these multiples of powers of ten, written out."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=ticks))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: format_rate(rate)))
    axes.yaxis.set_minor_locator(NullLocator())


def counts_axis(axes: Axes, label: str, counts: Sequence[int]) -> None:
    """Logarithmic, with as many of these numbers of systems written out as have room."""
    inches = _USED * axes.get_window_extent().width / axes.figure.dpi
    ticks = _ticks(counts, _DIGIT_INCHES / inches)
    axes.set_xlabel(label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def _ticks(counts: Sequence[int], digit: float) -> list[int]:
    """The last, the first, then powers of two and, of few, the others: none touches another.

    ``digit`` is the width of one as a share of the axis.
    """
    octaves = log2(counts[-1] / counts[0])
    powers = (count for count in counts if count.bit_count() == 1)
    others = counts if len(counts) <= _FEW else ()
    ticks: list[int] = []
    for count in (counts[-1], counts[0], *powers, *others):
        if all(_apart(count, tick, octaves, digit) for tick in ticks):
            ticks.append(count)
    return sorted(ticks)


def _apart(one: int, other: int, octaves: float, digit: float) -> bool:
    width = digit * (len(f"{one:,}{other:,}") + 1) / 2
    return abs(log2(one / other)) > width * octaves


def ideal_rates(counts: Sequence[int], rates: Sequence[float]) -> list[float]:
    """In proportion to the systems, from the fewest on."""
    return [rates[0] * count / counts[0] for count in counts]


def draw_ideal(axes: Axes, counts: Sequence[int], ideal: Sequence[float]) -> list[style.EndLabel]:
    """As a thin dashed line with its label; a single pace has no ideal."""
    if len(counts) == 1:
        return []
    axes.plot(counts, ideal, color=style.FAINT_INK, linewidth=1.2, linestyle=(0, (4, 3)))
    return [style.EndLabel(ideal[-1], "ideal", style.FAINT_INK)]
