"""A Gantt chart of systems: which workflow has held each of them, and what is expected to come."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from waferstream.management.model.operations import Explanation
from waferstream.management.model.workflow import Workflow
from waferstream.management.web.rendering import clock, duration

WIDTH = 1000
"""Units of a lane from the begin of the chart to its end."""

COLORS = 6
PAST_S, FUTURE_S = 3600.0, 3600.0
"""Of the time that a chart shows at least; it grows up to MOST_S with what is known."""

MOST_S = 24 * 3600.0
_TICKS = 5

Kind = Literal["held", "expected", "uncertain"]


@dataclass(frozen=True)
class Bar:
    """A time in which a workflow holds a system, or is expected to.

    ``uncertain`` bars reach from the earliest to the latest expected start.
    """

    workflow: str
    kind: Kind
    x: float
    width: float
    text: str


@dataclass(frozen=True)
class Lane:
    """What a system, or a waiting workflow of a user, has in the time of the chart."""

    name: str
    bars: tuple[Bar, ...]
    workflow: str = ""


@dataclass(frozen=True)
class Gantt:
    """A chart: a lane for each system, and one for each of the next workflows that wait."""

    systems: Sequence[Lane]
    waiting: Sequence[Lane]
    ticks: Sequence[str]
    now_x: float


@dataclass(frozen=True)
class _Span:
    """The time that a chart shows."""

    begin_s: float
    end_s: float

    def x(self, time_s: float) -> float:
        share = (time_s - self.begin_s) / (self.end_s - self.begin_s)
        return round(WIDTH * min(max(share, 0.0), 1.0), 1)

    def bars(
        self, workflow: Workflow, kind: Kind, begin_s: float, end_s: float, text: str
    ) -> Iterator[Bar]:
        """Yield the bar of a time, unless it lies outside of the chart."""
        if end_s > self.begin_s and begin_s < self.end_s:
            x = self.x(begin_s)
            width = max(self.x(end_s) - x, 1.5)
            yield Bar(workflow.name, kind, x, width, f"{workflow.name} ({workflow.user}): {text}")


def colors_of(workflows: Iterable[Workflow]) -> Mapping[str, int]:
    """Return the number of the color of each workflow: others for those that come together."""
    in_order = sorted(workflows, key=lambda workflow: (workflow.submitted_s, workflow.name))
    return {workflow.name: index % COLORS for index, workflow in enumerate(in_order)}


def gantt(
    systems: Sequence[str],
    workflows: Sequence[Workflow],
    waits: Sequence[Explanation],
    now_s: float,
) -> Gantt:
    """Draw a chart around now.

    Args:
        systems: The names of all systems.
        workflows: Unfinished ones, and those that ended not long ago.
        waits: What is expected of those that wait, the next one first.
        now_s: The time.
    """
    span = _span(workflows, waits, now_s)
    by_name = {workflow.name: workflow for workflow in workflows}
    held: dict[str, list[Bar]] = {name: [] for name in systems}
    for workflow in workflows:
        for name, bar in _held(workflow, span, now_s):
            held.setdefault(name, []).append(bar)
    step_s = (span.end_s - span.begin_s) / (_TICKS - 1)
    return Gantt(
        systems=[Lane(name, tuple(bars)) for name, bars in held.items()],
        waiting=[
            Lane(waiting.user, tuple(_expected(waiting, wait, span)), waiting.name)
            for wait in waits
            if (waiting := by_name.get(wait.workflow)) is not None
        ],
        ticks=[_hour(span.begin_s + index * step_s) for index in range(_TICKS)],
        now_x=span.x(now_s),
    )


def _hour(time_s: float) -> str:
    return time.strftime("%H:%M", time.localtime(time_s))


def _span(workflows: Iterable[Workflow], waits: Iterable[Explanation], now_s: float) -> _Span:
    """Return the time from the first placement to the last expected start, within limits."""
    begins = [each.since_s for workflow in workflows for each in workflow.tenures]
    begins += [workflow.held_since_s for workflow in workflows if workflow.held_since_s is not None]
    ends = [wait.latest_s for wait in waits if wait.latest_s is not None]
    ends += [now_s + 1.1 * (_remaining_s(workflow) or 0.0) for workflow in workflows]
    past_s = min(max([PAST_S / 60, *(now_s - begin_s for begin_s in begins)]), MOST_S)
    future_s = min(max([past_s / 3, *(end_s - now_s for end_s in ends)]), max(past_s, FUTURE_S))
    return _Span(now_s - past_s, now_s + future_s)


def _held(workflow: Workflow, span: _Span, now_s: float) -> Iterator[tuple[str, Bar]]:
    """Return what a workflow has held and still holds, by system."""
    for tenure in workflow.tenures:
        text = (
            f"{len(tenure.placement.systems)} CSX for {duration(tenure.until_s - tenure.since_s)}"
        )
        for bar in span.bars(workflow, "held", tenure.since_s, tenure.until_s, text):
            yield from ((name, bar) for name in tenure.placement.systems)
    if workflow.placement is not None and workflow.held_since_s is not None:
        text = f"{workflow.num_csx} CSX since {clock(workflow.held_since_s)}"
        for bar in span.bars(workflow, "held", workflow.held_since_s, now_s, text):
            yield from ((name, bar) for name in workflow.placement.systems)
        left_s = _remaining_s(workflow) or 0.0
        for bar in span.bars(
            workflow, "expected", now_s, now_s + left_s, f"{duration(left_s)} left"
        ):
            yield from ((name, bar) for name in workflow.placement.systems if left_s)


def _expected(workflow: Workflow, wait: Explanation, span: _Span) -> Iterator[Bar]:
    """Return the interval of the expected start, and the run that follows."""
    if wait.start_s is None or wait.earliest_s is None or wait.latest_s is None:
        return
    text = f"expected at {clock(wait.start_s)}"
    if wait.run_s is not None:
        end_s = wait.start_s + wait.run_s
        yield from span.bars(workflow, "expected", wait.start_s, end_s, text)
    text = f"starts between {clock(wait.earliest_s)} and {clock(wait.latest_s)}"
    yield from span.bars(workflow, "uncertain", wait.earliest_s, wait.latest_s, text)


def _remaining_s(workflow: Workflow) -> float | None:
    return None if workflow.progress is None else workflow.progress.remaining_s
