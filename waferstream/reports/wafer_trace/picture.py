"""Pictures of a kernel on the fabric: what every PE does in every cycle, and how many are busy.

One stands still; the other moves, an SVG, which a README can show. matplotlib takes long to import,
so import this module late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator

from csnode.fabric.program import Port
from csnode.fabric.simulator.activity import Work
from waferstream.reports import style
from waferstream.reports.wafer_trace.kernel_trace import WORK_NAMES, KernelTrace

COLORS = {
    Work.COMPUTE: style.BLUE,
    Work.RECEIVE: style.GREEN,
    Work.SEND: style.ORANGE,
    Work.PASS_ON: style.PURPLE,
}
"""Colours of what a PE does."""

_CYCLES_PER_S = 20
_PITCH, _SIDE, _LEFT, _TOP = 46, 30, 60, 40
_SOURCES = {Port.NORTH: (0, -1), Port.EAST: (1, 0), Port.SOUTH: (0, 1), Port.WEST: (-1, 0)}
"""Direction from which a wavelet comes that enters by a port: columns and rows."""


def trace_picture(path: Path, trace: KernelTrace) -> None:
    """Draw the work of all PEs over the cycles, and the busy PEs, as PNG."""
    rows, columns = trace.shape
    title = f"{trace.call.kernel} of {trace.layer} on {rows} x {columns} PEs"
    height = min(9.0, 3.2 + 0.14 * rows * columns)
    with style.picture(path, title, 11.0, height) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
        _work_panel(above, trace)
        _busy_panel(below, trace)
        below.set_xlabel(f"cycle; {trace.cycles} in all, {trace.closed_form:.0f} by closed form")


def _work_panel(axes: Axes, trace: KernelTrace) -> None:
    rows, columns = trace.shape
    colors = [style.GRID, *COLORS.values()]
    axes.imshow(
        trace.states,
        cmap=ListedColormap(colors),
        vmin=0,
        vmax=len(colors) - 1,
        aspect="auto",
        interpolation="nearest",
        extent=(0, trace.cycles, rows * columns, 0),
    )
    for row in range(1, rows):
        axes.axhline(row * columns, color="white", linewidth=2)
    labels = [f"row {row}" for row in range(rows)]
    if trace.has_edge:
        labels[0] = "edge"
    axes.set_yticks((np.arange(rows) + 0.5) * columns, labels)
    axes.grid(visible=False)
    for number, (work, color) in enumerate(COLORS.items()):
        axes.annotate(
            WORK_NAMES[work],
            (0.19 * number, 1.03),
            xycoords="axes fraction",
            color=color,
            fontweight="bold",
        )
    axes.annotate("idle", (0.76, 1.03), xycoords="axes fraction", color=style.FAINT_INK)


def _busy_panel(axes: Axes, trace: KernelTrace) -> None:
    rows, columns = trace.shape
    counts = [(trace.states == work + 1).sum(axis=0) for work in COLORS]
    axes.stackplot(
        np.arange(trace.cycles) + 0.5, counts, colors=list(COLORS.values()), step="mid", lw=0
    )
    axes.set_title("Busy PEs", color=style.FAINT_INK)
    axes.set_ylim(0, rows * columns)
    axes.set_xlim(0, trace.cycles)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def moving_picture(trace: KernelTrace) -> str:
    """Return PEs in the colours of their work, and wavelets between them, cycle by cycle."""
    rows, columns = trace.shape
    width, height = _LEFT + columns * _PITCH + 130, _TOP + rows * _PITCH + 26
    title = f"{trace.call.kernel.replace('_', ' ')} of {trace.layer}, {trace.cycles} cycles"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="12" fill="{style.FAINT_INK}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" fill="{style.INK}" font-weight="bold">{escape(title)}</text>',
        *_labels(trace),
        *(_pe(trace, pe) for pe in range(rows * columns)),
        *_wavelets(trace),
        _progress(trace, height - 14),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _labels(trace: KernelTrace) -> Iterator[str]:
    rows, columns = trace.shape
    for row in range(rows):
        name = "edge" if trace.has_edge and row == 0 else f"row {row}"
        yield f'<text x="8" y="{_TOP + row * _PITCH + _PITCH / 2 + 4}">{name}</text>'
    left = _LEFT + columns * _PITCH + 8
    for number, (work, color) in enumerate(COLORS.items()):
        y = _TOP + 16 + 20 * number
        yield f'<rect x="{left}" y="{y - 10}" width="12" height="12" rx="3" fill="{color}"/>'
        yield f'<text x="{left + 18}" y="{y}">{WORK_NAMES[work]}</text>'
    yield f'<circle cx="{left + 6}" cy="{_TOP + 92}" r="4" fill="{style.VERMILION}"/>'
    yield f'<text x="{left + 18}" y="{_TOP + 96}">wavelet</text>'


def _pe(trace: KernelTrace, pe: int) -> str:
    """Return the square of a PE, whose colour changes with its work."""
    colors = [style.GRID, *COLORS.values()]
    x, y = _center(trace, pe)
    changes = [(cycle, colors[state]) for cycle, state in _changes(trace.states[pe].tolist())]
    place = f'x="{x - _SIDE / 2}" y="{y - _SIDE / 2}" width="{_SIDE}" height="{_SIDE}" rx="4"'
    return f'<rect {place} fill="{style.GRID}">{_animated(trace, "fill", changes)}</rect>'


def _wavelets(trace: KernelTrace) -> Iterator[str]:
    """Yield a dot for each wire into a PE that is seen while a wavelet is on it."""
    assert trace.outcome.history is not None, "the fabric keeps its history"
    hops = trace.outcome.history.hops
    for pe, port in np.unique(hops[:, :2], axis=0).tolist():
        if port not in _SOURCES:
            continue
        busy = np.zeros(trace.cycles, dtype=np.int64)
        for *_, leaves, arrives, _ in hops[(hops[:, :2] == (pe, port)).all(axis=1)].tolist():
            busy[leaves:arrives] = 1
        (x, y), (right, down) = _center(trace, pe), _SOURCES[port]
        place = f'cx="{x + right * _PITCH / 2}" cy="{y + down * _PITCH / 2}" r="4"'
        changes = [(cycle, str(state)) for cycle, state in _changes(busy.tolist())]
        dot = _animated(trace, "opacity", changes)
        yield f'<circle {place} fill="{style.VERMILION}" opacity="0">{dot}</circle>'


def _progress(trace: KernelTrace, y: float) -> str:
    """Return the bar below the PEs that shows how far the kernel is."""
    gap = _PITCH - _SIDE
    width = trace.shape[1] * _PITCH - gap
    moves = f'<animate attributeName="width" from="0" to="{width}" {_duration(trace)}/>'
    place = f'x="{_LEFT + gap / 2}" y="{y}" width="0" height="4"'
    return f'<rect {place} fill="{style.FAINT_INK}">{moves}</rect>'


def _center(trace: KernelTrace, pe: int) -> tuple[float, float]:
    row, column = divmod(pe, trace.shape[1])
    return _LEFT + (column + 0.5) * _PITCH, _TOP + (row + 0.5) * _PITCH


def _changes(states: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first cycle and the state of each run of equal states."""
    for state, run in groupby(enumerate(states), key=lambda each: each[1]):
        yield next(run)[0], state


def _animated(trace: KernelTrace, attribute: str, changes: Sequence[tuple[int, str]]) -> str:
    times = ";".join(f"{cycle / trace.cycles:.4g}" for cycle, _ in changes)
    values = ";".join(value for _, value in changes)
    return (
        f'<animate attributeName="{attribute}" calcMode="discrete" {_duration(trace)} '
        f'keyTimes="{times}" values="{values}"/>'
    )


def _duration(trace: KernelTrace) -> str:
    return f'dur="{trace.cycles / _CYCLES_PER_S:g}s" repeatCount="indefinite"'
