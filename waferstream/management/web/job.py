"""What the page of one workflow shows, as plain data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from waferstream.machine.attribution import CAUSES
from waferstream.management.model.event import Event, Progressed
from waferstream.management.model.telemetry import Telemetry
from waferstream.management.model.workflow import Progress

MOST_POINTS = 2_000
"""Points of a curve: about those of a wide screen."""


class Point(NamedTuple):
    """Loss and throughput at a step."""

    step: int
    loss: float | None
    samples_per_s: float
    emulated_samples_per_s: float


@dataclass(frozen=True)
class Share:
    """A cause of emulated time, with its share of the time of all systems."""

    cause: str
    meaning: str
    x: float  # where its part of the bar begins, in percent
    percent: float
    seconds: float  # of one system, on average


def point(progress: Progress) -> Point:
    """Return the point of a report of a run."""
    return Point(
        progress.step, progress.loss, progress.samples_per_s, progress.emulated_samples_per_s
    )


def points(events: Iterable[Event]) -> list[Point]:
    """Return the curves of a run; steps that ran again count as they were the last time."""
    curve: list[Point] = []
    for event in events:
        if isinstance(event.fact, Progressed):
            newest = point(event.fact.progress)
            while curve and curve[-1].step >= newest.step:
                curve.pop()
            curve.append(newest)
    return thinned(curve)


def thinned(curve: Sequence[Point]) -> list[Point]:
    """Return at most about MOST_POINTS points of a curve, the last one among them."""
    stride = -(-len(curve) // MOST_POINTS) or 1
    return [*curve[:-1:stride], *curve[-1:]]


def shares(telemetry: Telemetry) -> list[Share]:
    """Return the causes of the emulated time of all systems so far."""
    spent_s: defaultdict[str, float] = defaultdict(float)
    systems = set()
    for sample in telemetry.of("role_seconds_total"):
        role, cause = sample.labels
        systems.add(role)
        spent_s[cause] += sample.value
    whole_s, x, found = sum(spent_s.values()), 0.0, []
    for cause, meaning in CAUSES.items():
        if spent_s[cause] > 0:
            percent = 100 * spent_s[cause] / whole_s
            found.append(Share(cause, meaning, x, percent, spent_s[cause] / len(systems)))
            x += percent
    return found
