"""Drawings of a page as SVG, whose colours follow the page, light or dark."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup, escape

WIDTH = 420.0
"""Units of a drawing: at most the pixels of a phone, so that text stays readable there."""

Color = Literal[
    "blue", "orange", "green", "purple", "sky", "vermilion", "light", "line", "ink", "faint"
]
"""A colour that the style of the page defines."""
Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]

CAUSE_COLORS: Mapping[str, Color] = {
    "compute": "blue",
    "overhead": "sky",
    "straggler": "vermilion",
    "weights": "orange",
    "activations": "ink",
    "input": "green",
    "reduce": "purple",
    "idle": "light",
}
"""One colour for each cause of waferstream.machine.attribution, on all pages and pictures."""

_MOST_POINTS = 800  # of a curve: more than a screen has columns


class Drawing:
    """A drawing of ``WIDTH`` units and a height; the origin is the upper left corner."""

    def __init__(self, height: float) -> None:
        self.height = height
        self._parts: list[Markup] = []

    def rect(
        self, x: float, y: float, width: float, height: float, color: Color, opacity: float = 1.0
    ) -> None:
        """Fill a rectangle."""
        self._add(
            '<rect x="{}" y="{}" width="{}" height="{}" class="fill-{}" opacity="{}"/>',
            *map(_plain, (x, y, max(0.0, width), max(0.0, height))), color, _plain(opacity),
        )  # fmt: skip

    def line(self, start: Point, end: Point, color: Color, width: float = 1.0) -> None:
        """Draw a straight line."""
        self.path((start, end), color, width)

    def path(
        self, points: Sequence[Point], color: Color, width: float = 2.0, opacity: float = 1.0
    ) -> None:
        """Draw a line through points."""
        self._add(
            '<polyline points="{}" class="stroke-{}" stroke-width="{}" opacity="{}"/>',
            _coordinates(points), color, _plain(width), _plain(opacity),
        )  # fmt: skip

    def area(self, points: Sequence[Point], color: Color) -> None:
        """Fill the polygon with these corners."""
        self._add('<polygon points="{}" class="fill-{}"/>', _coordinates(points), color)

    def dot(self, at: Point, color: Color) -> None:
        """Draw a filled circle."""
        self._add('<circle cx="{}" cy="{}" r="3.5" class="fill-{}"/>', *map(_plain, at), color)

    def text(self, at: Point, text: str, color: Color = "faint", anchor: Anchor = "start") -> None:
        """Write a line of text whose base line starts, centres or ends at a point."""
        self._add(
            '<text x="{}" y="{}" text-anchor="{}" class="fill-{}">{}</text>',
            *map(_plain, at), anchor, color, text,
        )  # fmt: skip

    def legend(self, x: float, y: float, names: Sequence[tuple[str, Color]]) -> None:
        """Write names side by side, each in its colour."""
        for name, color in names:
            self.text((x, y), name, color)
            x += 7 * len(name) + 16

    def svg(self, description: str) -> Markup:
        """Return the drawing as an element of a page; ``description`` says what it shows."""
        head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            _plain(WIDTH), _plain(self.height), escape(description)
        )
        return head + Markup("").join(self._parts) + Markup("</svg>")

    def _add(self, element: str, *values: str) -> None:
        self._parts.append(Markup(element).format(*values))


@dataclass(frozen=True)
class Series:
    """A curve with its name; the values of a smooth one are joined, those of others are dots."""

    name: str
    points: tuple[Point, ...]
    color: Color
    has_dots: bool = False


def chart(
    series: Sequence[Series], x_name: str, description: str, *, from_zero: bool = False
) -> Markup:
    """Draw curves over a common axis; points that are not finite are left out.

    Args:
        series: The curves, at least one.
        x_name: What the axis below counts.
        description: What the chart shows, for those who do not see it.
        from_zero: Whether the axis of the values begins at zero.
    """
    drawn = [_finite(one) for one in series]
    points = [point for one in drawn for point in one.points]
    drawing = Drawing(230)
    if not points:
        drawing.text((WIDTH / 2, 115), "no finite value", anchor="middle")
        return drawing.svg(description)
    frame = _Frame.around([*points, (points[0][0], 0.0)] if from_zero else points)
    frame.draw_axes(drawing, x_name)
    for one in drawn:
        frame.draw(drawing, one)
    drawing.legend(46, 12, [(one.name, one.color) for one in drawn if one.points])
    return drawing.svg(description)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers from ``low`` to ``high``, at most ``most`` and at least one."""
    span = high - low
    if span <= 0:
        return [low]
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)] or [low]


@dataclass(frozen=True)
class _Frame:
    """The part of a chart that holds the curves: ranges of both axes."""

    x: tuple[float, float]
    y: tuple[float, float]

    left, right, top, bottom = 46.0, WIDTH - 10, 22.0, 192.0

    @classmethod
    def around(cls, points: Sequence[Point]) -> _Frame:
        xs, ys = zip(*points, strict=True)
        low, high = min(ys), max(ys)
        margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
        return cls((min(xs), max(xs)), (low - margin if low else 0.0, high + margin))

    def place(self, point: Point) -> Point:
        """Return where a value is drawn."""
        x, y = point
        width = self.x[1] - self.x[0]
        across = (x - self.x[0]) / width if width else 0.5
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return (
            self.left + across * (self.right - self.left),
            self.bottom - up * (self.bottom - self.top),
        )

    def draw_axes(self, drawing: Drawing, x_name: str) -> None:
        """Draw lines at round values, and the numbers beside and below."""
        for value in ticks(*self.y, 5):
            _, y = self.place((self.x[0], value))
            drawing.line((self.left, y), (self.right, y), "line")
            drawing.text((self.left - 6, y + 4), f"{value:,.6g}", anchor="end")
        for value in ticks(*self.x, 5):
            if value == int(value):
                x, _ = self.place((value, self.y[0]))
                anchor: Anchor = "end" if x > self.right - 12 else "middle"
                drawing.text((x, self.bottom + 16), f"{value:,.0f}", anchor=anchor)
        drawing.text(((self.left + self.right) / 2, self.bottom + 32), x_name, anchor="middle")

    def draw(self, drawing: Drawing, series: Series) -> None:
        """Draw one curve; a single point becomes a dot."""
        placed = [self.place(point) for point in series.points]
        if len(placed) > 1:
            drawing.path(placed, series.color, 1.2 if series.has_dots else 2.0)
        if series.has_dots or len(placed) == 1:
            for at in placed:
                drawing.dot(at, series.color)


def _finite(series: Series) -> Series:
    """Return the finite points of a curve, of a long one every n-th and the last."""
    points = [point for point in series.points if math.isfinite(point[1])]
    stride = -(-len(points) // _MOST_POINTS) or 1
    kept = points[::stride]
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return Series(series.name, tuple(kept), series.color, series.has_dots)


def stacked(
    layers: Sequence[tuple[Sequence[float], Color]],
    frame: tuple[float, float, float, float],
    highest: float,
) -> Iterator[tuple[list[Point], Color]]:
    """Yield a polygon for each layer of bars without gaps, from the lowest to the highest.

    Args:
        layers: The heights of the bars of each layer, and its colour.
        frame: Left, top, width and height of the drawing.
        highest: The value at the top.
    """  # fmt: skip
    left, top, width, height = frame
    count = len(layers[0][0])
    below = [0.0] * count
    for heights, color in layers:
        above = [base + bar for base, bar in zip(below, heights, strict=True)]
        outline = [
            (left + width * (index + side) / count, top + height * (1 - value / highest))
            for index, value in enumerate(above) for side in (0, 1)
        ]  # fmt: skip
        inline = [
            (left + width * (index + side) / count, top + height * (1 - value / highest))
            for index, value in enumerate(below) for side in (0, 1)
        ]  # fmt: skip
        yield [*outline, *reversed(inline)], color
        below = above


def _coordinates(points: Sequence[Point]) -> str:
    return " ".join(f"{_plain(x)},{_plain(y)}" for x, y in points)


def _plain(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
