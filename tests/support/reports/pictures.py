"""Read colours and texts back from pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import patch

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image


@contextmanager
def drawn(*, are_saved: bool = False) -> Iterator[list[Figure]]:
    """Collect the figures that are saved in the block, in order.

    Their files have few pixels if they ``are_saved``, else none: to save a figure lays it out again
    and draws it, which its texts do not need.
    """
    figures: list[Figure] = []
    save = Figure.savefig

    def note(figure: Figure, path: Path, **how: Any) -> None:
        figures.append(figure)
        if are_saved:
            save(figure, path, **{**how, "dpi": 50})
        else:
            path.touch()

    with patch.object(Figure, "savefig", note):
        yield figures


def words(figure: Figure) -> list[str]:
    """Return every text of a figure, titles and tick labels included."""
    return [text.get_text() for text in _texts(figure)]


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Return pairs of texts that overlap."""
    figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in _texts(figure)]
    return [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)]


def _texts(figure: Figure) -> list[Text]:
    found = [*figure.texts, *(text for axes in figure.axes for text in _axes_texts(axes))]
    return [text for text in found if text.get_text()]


def _axes_texts(axes: Axes) -> Iterator[Text]:
    yield from axes.texts
    for alignment in ("left", "center", "right"):
        yield axes.title if alignment == "center" else getattr(axes, f"_{alignment}_title")
    for axis in (axes.xaxis, axes.yaxis):
        yield axis.label
        low, high = sorted(axis.get_view_interval())
        yield from (t.label1 for t in axis.get_major_ticks() if low <= t.get_loc() <= high)


def shows(path: Path, color: str) -> bool:
    """Return whether a PNG has pixels of exactly this colour."""
    wanted = tuple(bytes.fromhex(color.removeprefix("#")))
    with Image.open(path) as image:
        colors = image.convert("RGB").getcolors(1 << 24)
    return colors is not None and any(found == wanted for _, found in colors)
