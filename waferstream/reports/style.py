"""Style of all pictures: plain axes, colour-blind-safe colours, labels at the ends of curves.

A picture is for the screen, or for a paper: as wide as a column or a page of it, with the letters
of a caption, without a title, and with fonts that a publisher takes (TrueType in PDF).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

from matplotlib import font_manager, rc_context, rcParams, rcParamsDefault
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from waferstream.host.files import replacing
from waferstream.reports.drawing import CAUSE_COLORS as _NAMES_OF_CAUSES

# Okabe and Ito, "Color Universal Design" (2008): distinct for every kind of colour vision
BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
VERMILION = "#D55E00"

SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""Colours of curves, in the order in which they are taken."""

INK = "#1F2933"
FAINT_INK = "#6B7785"
LIGHT = "#D9DEE4"
GRID = "#EDF0F3"

CAUSE_COLORS: Mapping[str, str] = {
    cause: str(globals()[color.upper()]) for cause, color in _NAMES_OF_CAUSES.items()
}
"""The one colour of each cause of a step's time, in stacking order."""

Width = Literal["column", "page", "screen"]
WIDTHS: Mapping[Width, float] = {"column": 3.5, "page": 7.16, "screen": 11.0}
"""Inches: of a column and of a page of an IEEE paper (close to those of ACM), and of a screen."""

_FONTS = (
    "Inter",
    "Helvetica Neue",
    "Arial",
    "Liberation Sans",
    "DejaVu Sans",
)  # matplotlib includes the last
_DPI = 200  # twice the resolution of a common screen

_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": LIGHT,
    "axes.labelcolor": FAINT_INK,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titlepad": 12,
    "grid.color": GRID,
    "grid.linewidth": 1.0,
    "xtick.color": LIGHT,
    "xtick.labelcolor": FAINT_INK,
    "ytick.labelcolor": FAINT_INK,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "xtick.minor.size": 0,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "figure.constrained_layout.h_pad": 0.16,
    "figure.constrained_layout.w_pad": 0.16,
}


_PAPER: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlepad": 5,
    "legend.fontsize": 7,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "pdf.fonttype": 42,  # TrueType: most publishers refuse Type 3
    "svg.hashsalt": "waferstream",  # equal pictures are equal files
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
}


@contextmanager
def picture(
    path: Path, title: str, width: float, height: float, *, is_for_paper: bool = False
) -> Iterator[Figure]:
    """Yield a figure of ``width`` x ``height`` inches; write it when the block ends.

    The format is that of a path that ends in .svg or .pdf, else PNG. A paper has a caption, so
    there the title is left out.
    """
    known = set(font_manager.get_font_names())
    font = next(name for name in _FONTS if name in known)
    look = {**_defaults(), **_STYLE, **(_PAPER if is_for_paper else {}), "font.family": font}
    with rc_context(look), replacing(path) as partial:
        figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
        if not is_for_paper:
            figure.suptitle(title, x=0.02, ha="left", fontsize=13, fontweight="bold")
        yield figure
        kind = path.suffix[1:] if path.suffix in (".svg", ".pdf") else "png"
        undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        lay_out(figure)
        figure.set_layout_engine(None)  # savefig would do it twice more, which takes longest
        options: dict[str, Any] = {"metadata": undated}
        if kind == "png":
            options["pil_kwargs"] = {"compress_level": 3}  # a sixth larger, in half the time
        figure.savefig(partial, dpi=_DPI, format=kind, **options)


def _defaults() -> dict[Any, Any]:
    """Return matplotlib's own values of what a matplotlibrc of the user's has changed."""
    own = ((name, value) for name, value in rcParamsDefault.items() if "backend" not in name)
    return {name: value for name, value in own if rcParams[name] != value}


def lay_out(figure: Figure) -> None:
    """Give the axes of a figure the sizes that what is in and around them leaves."""
    engine = figure.get_layout_engine()
    assert engine is not None, "of a picture"
    engine.execute(figure)


class EndLabel(NamedTuple):
    """Label of a curve or bar that ends at height ``y``, in data coordinates."""

    y: float
    text: str
    color: str


def label_ends(axes: Axes, labels: Sequence[EndLabel]) -> None:
    """Write labels to the right of the axes, each as near to its height as the others allow.

    The axes must have their final limits.
    """
    to_fraction = axes.transData + axes.transAxes.inverted()
    heights = [float(to_fraction.transform((0.0, label.y))[1]) for label in labels]
    line_height = 15 / (axes.get_window_extent().height * 72 / axes.figure.dpi)
    for label, height in zip(labels, spread(heights, line_height, 0.0, 1.0), strict=True):
        axes.text(
            1.02,
            height,
            label.text,
            color=label.color,
            transform=axes.transAxes,
            va="center",
            fontweight="bold",
        )


def spread(
    heights: Sequence[float], distance: float, lowest: float = -inf, highest: float = inf
) -> list[float]:
    """Move heights until they are at least ``distance`` apart; keeps their order.

    Heights that are too close form a block, spaced evenly around its mean; blocks that overlap
    merge. No height is below ``lowest``, and none above ``highest`` if all fit.
    """
    # adjustText does the same by iteration: its labels are spaced unevenly and leave the axes

    def extent(block: list[int]) -> tuple[float, float]:
        mean = sum(heights[index] for index in block) / len(block)
        width = (len(block) - 1) * distance
        bottom = max(lowest, min(mean - width / 2, highest - width))
        return bottom, bottom + width

    def overlap(lower: list[int], upper: list[int]) -> bool:
        return extent(upper)[0] - extent(lower)[1] < distance

    order = sorted(range(len(heights)), key=lambda index: heights[index])
    blocks: list[list[int]] = []
    for index in order:
        blocks.append([index])
        while len(blocks) > 1 and overlap(blocks[-2], blocks[-1]):
            upper = blocks.pop()
            blocks[-1] += upper
    placed = [0.0] * len(heights)
    for block in blocks:
        bottom, _ = extent(block)
        for place, index in enumerate(block):
            placed[index] = bottom + place * distance
    return placed
