"""Drawings of the emulated machine: a wafer, its SRAM, and the tree with the load of its links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from swarmx.topology import Tree
from waferstream.core.units import counted, format_bytes
from waferstream.machine.sram import SramPlan, SramReport
from waferstream.reports.drawing import CAUSE_COLORS, WIDTH, Color, Drawing, Point, stacked
from waferstream.reports.machine.use import LinkLoad

_MOST_BOXES = 16  # of a level of the tree
_BOX_WIDTH = 22.0  # where there is space
_LABELS_WIDTH = 96.0  # left of the tree
_MOST_BARS = 600  # segments of a drawing


def shares_drawing(shares: Mapping[str, float]) -> Markup:
    """Draw the shares of a step by cause, as bars from a common line."""
    drawing = Drawing(24 * len(shares) + 6)
    for place, (cause, share) in enumerate(shares.items()):
        y = 6 + 24 * place
        drawing.text((70, y + 12), cause, "ink", "end")
        drawing.rect(78, y, max(1.0, 280 * share), 16, CAUSE_COLORS[cause])
        drawing.text((84 + 280 * share, y + 12), f"{share:.1%}", "ink")
    return drawing.svg("Shares of the emulated step by cause")


def grid_drawing(report: SramReport, columns: int, rows: int) -> Markup:
    """Draw the grid of PEs, and on it the activations of every layer's products.

    Args:
        report: The SRAM plan of a micro-batch.
        columns: PEs of a row of the grid.
        rows: Rows of the grid.
    """
    drawing = Drawing(300)
    scale = min(270 / rows, (WIDTH - 60) / columns)
    width, height = columns * scale, rows * scale
    left, top = (WIDTH - width) / 2, 8.0
    drawing.rect(left, top, width, height, "light")
    extents = sorted({(one.columns, one.rows) for one in report.layers if one.columns})
    for across, down in reversed(extents):
        drawing.rect(left, top, across * scale, down * scale, "blue", 0.8 / len(extents) + 0.15)
    for x in (left - 12, left + width + 4):
        drawing.rect(x, top, 8, height, "purple")
    label = f"{columns} x {rows} PEs; I/O at both sides"
    drawing.text((WIDTH / 2, top + height + 16), label, anchor="middle")
    return drawing.svg("Grid of processing elements, and the extents of layers on it")


def sram_drawing(plan: SramPlan, report: SramReport) -> Markup:
    """Draw what lies in the SRAM of a wafer over the segments of a micro-batch."""
    drawing = Drawing(300)
    samples = report.micro_batch_size
    layers: tuple[tuple[list[float], Color], ...] = (
        (_peaks([moment.stash.of(samples) for moment in plan.moments]), "blue"),
        (_peaks([moment.working.of(samples) for moment in plan.moments]), "orange"),
        (_peaks(list(plan.buffers)), "green"),
    )
    left, top, width, height = frame = 10.0, 44.0, WIDTH - 20, 216.0
    is_small = report.peak_bytes < report.capacity_bytes / 5
    highest = 1.05 * max(1, report.peak_bytes if is_small else report.capacity_bytes)
    drawing.rect(left, top, width, height, "line", 0.5)
    for outline, color in stacked(layers, frame, highest):
        drawing.area(outline, color)
    if not is_small:
        y = top + height * (1 - report.capacity_bytes / highest)
        drawing.line((left, y), (left + width, y), "vermilion", 1.5)
    capacity = f"capacity {format_bytes(report.capacity_bytes)}{', far above' * is_small}"
    drawing.text((WIDTH - 10, 34), capacity, "vermilion", "end")
    names = ("stash", "working set", "streams")
    drawing.legend(10, 34, [(n, color) for n, (_, color) in zip(names, layers, strict=True)])
    peak = f"peak {format_bytes(report.peak_bytes)}, at {report.peak_at}"
    drawing.text((10, 14), peak, "ink")
    drawing.text((WIDTH / 2, 280), "segments of a micro-batch", anchor="middle")
    return drawing.svg("SRAM of a wafer over the segments of a micro-batch")


def _peaks(values: Sequence[float]) -> list[float]:
    """Return the values, of a long sequence the largest of every few neighbours."""
    stride = -(-len(values) // _MOST_BARS)
    return [max(values[first : first + stride]) for first in range(0, len(values), stride)]


def tree_drawing(tree: Tree, load: LinkLoad) -> Markup:
    """Draw MemoryX, the switches level by level and the systems, with the load of the links.

    A level of many shows some of its switches, and says how many there are.
    """
    levels = [("MemoryX", 1)]
    for level in range(tree.depth):
        count = sum(switch.level == level for switch in tree.switches)
        levels.append((counted(count, "switch", "switches"), count))
    levels.append((counted(tree.num_nodes, "system"), tree.num_nodes))
    drawing = Drawing(52 * len(levels) + 24)
    above: list[Point] = []
    for depth, (_, count) in enumerate(levels):
        boxes = _boxes(count, 10.0 + 52 * depth)
        for place, (x, y) in enumerate(boxes):
            if above:
                parent = above[place * len(above) // len(boxes)]
                drawing.line((parent[0], parent[1] + 18), (x, y), "sky", 1 + 5 * load.down)
        above = boxes
    for depth, (name, count) in enumerate(levels):
        y = 10.0 + 52 * depth
        color: Color = "orange" if depth == 0 else "green" if depth <= tree.depth else "blue"
        for x, _ in _boxes(count, y):
            width = min(_BOX_WIDTH, 0.8 * (WIDTH - _LABELS_WIDTH) / min(count, _MOST_BOXES))
            drawing.rect(x - width / 2, y, width, 18, color)
        drawing.text((0, y + 13), name, "ink")
    text = f"every link: down {percent(load.down)}, up {percent(load.up)} of its bandwidth"
    if any(count > _MOST_BOXES for _, count in levels):
        text += f"; {_MOST_BOXES} of each larger level"
    drawing.text((WIDTH / 2, drawing.height - 6), text, anchor="middle")
    return drawing.svg("Tree of SwarmX between MemoryX and the systems")


def percent(fraction: float) -> str:
    """Return a fraction in percent, with three digits however small it is."""
    return f"{100 * fraction:.3g}%"


def _boxes(count: int, y: float) -> list[Point]:
    """Return the upper centres of the boxes of one level."""
    shown = min(count, _MOST_BOXES)
    left, width = _LABELS_WIDTH, WIDTH - _LABELS_WIDTH
    return [(left + width * (index + 0.5) / shown, y) for index in range(shown)]
