"""Picture of a kernel on the fabric: what every PE does in every cycle, and how many are busy.

matplotlib takes long to import, so import this module late.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator

from waferstream.reports import style
from waferstream.reports.wafer_trace.kernel_trace import WORK_NAMES, KernelTrace
from waferstream.reports.wafer_trace.moving_picture import COLORS


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
