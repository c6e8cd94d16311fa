"""Picture of a wafer in use: the PEs of a layer, the SRAM of a PE, and the SRAM over a step.

Activations are spread over the whole grid, so every PE holds a slice of each. Left: the extent of a
layer's tiles on the grid. Middle: the contents of one PE's SRAM at the peak. Right: the SRAM of the
wafer over the segments of a micro-batch. matplotlib takes long to import, so import this module
late.
"""

from __future__ import annotations

from itertools import accumulate
from operator import add
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from waferstream.core.units import GIB, KIB, counted, format_bytes
from waferstream.machine.sram import SramCourse
from waferstream.reports import style

_IO_WIDTH = 0.03  # of the grid's width; enlarged to be visible, the real width is a few columns


def wafer_picture(path: Path, course: SramCourse, title: str) -> None:
    """Draw the grid, the SRAM of a PE at the step's peak, and the SRAM over the step, as PNG."""
    with style.picture(path, title, 13.0, 5.2) as figure:
        wafer, memory, step = figure.subplots(1, 3, width_ratios=(1.0, 0.4, 1.5))
        _wafer_panel(wafer, course)
        memory_labels = _memory_panel(memory, course)
        step_labels = _step_panel(step, course)
        figure.supxlabel(course.report.wafer, fontsize=8, color=style.FAINT_INK, x=0.02, ha="left")
        style.lay_out(figure)
        style.label_ends(memory, memory_labels)
        style.label_ends(step, step_labels)


def _wafer_panel(axes: Axes, course: SramCourse) -> None:
    columns, rows = course.columns, course.rows
    layer = max(course.report.layers, key=lambda layer: layer.stash_bytes)
    io = _IO_WIDTH * columns
    axes.set_title(f"Grid of {columns} x {rows} PEs", color=style.FAINT_INK)
    for x, width, height, color in (
        (-2 * io, io, rows, style.PURPLE),
        (columns + io, io, rows, style.PURPLE),
        (0, columns, rows, style.LIGHT),
        (0, layer.columns, layer.rows, style.BLUE),
    ):
        axes.add_patch(Rectangle((x, rows - height), width, height, color=color, lw=0))
    used = layer.columns * layer.rows / course.report.grid_pes
    fits_inside = layer.columns > 0.4 * columns and layer.rows > 0.16 * rows
    inside = (layer.columns / 2, rows - layer.rows / 2)
    beside = (0.7 * columns, rows / 2)
    axes.annotate(
        f"{layer.layer}\n{layer.columns} x {layer.rows} PEs\n{used:.1%} of the grid",
        inside if fits_inside else beside,
        ha="center",
        va="center",
        color="white" if fits_inside else style.BLUE,
        fontweight="bold",
    )
    axes.set_xlabel("features")
    axes.set_ylabel("tokens")
    for x in (-1.5 * io, columns + 1.5 * io):
        axes.annotate(
            "I/O",
            (x, 0),
            (0, -4),
            textcoords="offset points",
            ha="center",
            va="top",
            color=style.PURPLE,
            fontweight="bold",
        )
    axes.set_xlim(-3 * io, columns + 3 * io)
    axes.set_ylim(0, rows)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])


def _memory_panel(axes: Axes, course: SramCourse) -> list[style.EndLabel]:
    report, stash = course.report, course.stash_by_layer
    kib_of_pe = course.cores * KIB
    free_bytes = max(0, report.capacity_bytes - report.peak_bytes)
    labels, top = [], 0.0
    for kind, pieces, color in (
        ("code", [report.code_bytes], style.FAINT_INK),
        (f"stash of {counted(len(stash), 'layer')}", stash, style.BLUE),
        ("working set", [report.peak_working_bytes], style.ORANGE),
        ("streams", [report.peak_buffer_bytes], style.GREEN),
        ("free", [free_bytes], style.LIGHT),
    ):
        bottom = top
        heights = [piece / kib_of_pe for piece in pieces]
        *bottoms, top = accumulate(heights, initial=bottom)
        shades = [(color, _shade(place, len(pieces))) for place in range(len(pieces))]
        axes.bar(0, heights, 1.0, bottoms, color=shades)
        text = f"{kind}  {top - bottom:.1f}"
        ink = style.FAINT_INK if color == style.LIGHT else color
        labels.append(style.EndLabel((bottom + top) / 2, text, ink))
    axes.set_title("SRAM of a PE, KiB", color=style.FAINT_INK)
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.set_xlim(-0.5, 0.5)
    axes.set_ylim(0, top)
    return labels


def _shade(place: int, count: int) -> float:
    """Return alternating opacities, so that neighbouring layers differ."""
    return 1.0 if count == 1 or place % 2 else 0.75


def _step_panel(axes: Axes, course: SramCourse) -> list[style.EndLabel]:
    report = course.report
    stash = [piece / GIB for piece in course.stash]
    working = [piece / GIB for piece in course.working]
    buffers = [piece / GIB for piece in course.buffers]
    capacity, peak = report.capacity_bytes / GIB, report.peak_bytes / GIB
    edges = [segment - 0.5 for segment in range(len(stash) + 1)]
    axes.set_title("SRAM over a micro-batch, GiB", color=style.FAINT_INK)
    axes.set_xlabel("segment")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    bottom: list[float] = [0.0] * len(stash)
    for pieces, color in ((stash, style.BLUE), (working, style.ORANGE), (buffers, style.GREEN)):
        top = list(map(add, bottom, pieces))
        axes.stairs(top, edges, baseline=bottom, fill=True, color=color, linewidth=0)
        bottom = top
    axes.axhline(capacity, color=style.VERMILION, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, 1.08 * max(capacity, peak))
    above = peak < capacity / 2  # a high peak leaves no space below the line of the capacity
    axes.annotate(
        f"{report.peak_at}: {format_bytes(report.peak_bytes)}",
        (course.peak_segment, peak),
        (0, 4) if above else (-8, -2),
        textcoords="offset points",
        ha="center" if above else "right",
        va="bottom" if above else "top",
        color=style.INK,
        fontsize=9,
    )
    label = f"capacity {format_bytes(report.capacity_bytes)}"
    return [style.EndLabel(capacity, label, style.VERMILION)]
