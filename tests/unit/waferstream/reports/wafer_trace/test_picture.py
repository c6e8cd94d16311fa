"""The moving picture of a trace: colours and wavelets of every cycle are those of the simulator."""

from __future__ import annotations

from bisect import bisect_right
from xml.etree import ElementTree

import pytest

from waferstream.reports import style
from waferstream.reports.wafer_trace.kernel_trace import KernelTrace
from waferstream.reports.wafer_trace.picture import COLORS, moving_picture

SVG = "{http://www.w3.org/2000/svg}"


def _moving(trace: KernelTrace, kind: str, attribute: str) -> list[ElementTree.Element]:
    """Return the animations of an attribute of all elements of a kind."""
    found = ElementTree.fromstring(moving_picture(trace)).iter(f"{SVG}{kind}")
    animations = (each.find(f"{SVG}animate[@attributeName='{attribute}']") for each in found)
    return [each for each in animations if each is not None]


def _shown(animation: ElementTree.Element, trace: KernelTrace, cycle: int) -> str:
    """Return what an animation shows in the middle of a cycle."""
    times = [float(time) for time in animation.attrib["keyTimes"].split(";")]
    place = bisect_right(times, (cycle + 0.5) / trace.cycles) - 1
    return animation.attrib["values"].split(";")[place]


def test_squares_have_the_colours_of_the_states(trace: KernelTrace) -> None:
    colors = [style.GRID, *COLORS.values()]
    squares = _moving(trace, "rect", "fill")
    assert len(squares) == len(trace.states)
    for square, states in zip(squares, trace.states.tolist(), strict=True):
        shown = [_shown(square, trace, cycle) for cycle in range(trace.cycles)]
        assert shown == [colors[state] for state in states]


def test_dots_are_seen_while_wavelets_are_on_their_way(trace: KernelTrace) -> None:
    history = trace.outcome.history
    assert history is not None
    underway = sum(
        len({cycle for *_, leaves, arrives, _ in wire for cycle in range(leaves, arrives)})
        for wire in _wires(history.hops.tolist())
    )
    dots = _moving(trace, "circle", "opacity")
    seen = sum(_shown(dot, trace, cycle) == "1" for dot in dots for cycle in range(trace.cycles))
    assert seen == underway


def _wires(hops: list[list[int]]) -> list[list[list[int]]]:
    wires: dict[tuple[int, int], list[list[int]]] = {}
    for hop in hops:
        wires.setdefault((hop[0], hop[1]), []).append(hop)
    return list(wires.values())


@pytest.mark.parametrize("loading", ["href", "url(", "<script", "@import"])
def test_picture_loads_nothing(trace: KernelTrace, loading: str) -> None:
    assert loading not in moving_picture(trace)
