"""Activities in measured time, for traces: what a role or process did when, and for which part.

A role measures with ``time.perf_counter_ns``, the clock of its host. A log has a limit, since a run
may have any number of steps; the default keeps nothing, and costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from waferstream.core.program.program import Program
from waferstream.core.program.stream_plan import Bucket


class Place(NamedTuple):
    """Where in a run an activity belongs; what does not apply is empty, or -1."""

    mode: str = ""
    step: int = 0
    round: int = -1
    layer: str = ""
    phase: str = ""


NOWHERE = Place()

RECOVER = "recover"
"""The activity of making a cluster whole again; what its roles did before is not in a trace."""


def place_of(program: Program, bucket: Bucket, step: int, round_index: int = -1) -> Place:
    """Return the place of what is done with a bucket of weights or gradients."""
    segment = program.segments[bucket.segment]
    return Place(program.kind, step, round_index, segment.layer, segment.phase)


@dataclass(frozen=True, slots=True)
class Interval:
    """One activity of a role in measured time (``time.perf_counter_ns`` clock)."""

    activity: str
    start_ns: int
    end_ns: int
    place: Place = NOWHERE
    detail: str = ""
    num_bytes: int = 0

    @property
    def step(self) -> int:
        """The step to which the activity belongs."""
        return self.place.step


def earliest(
    found: Iterable[tuple[str, Interval]], limit: int
) -> tuple[dict[str, list[Interval]], int]:
    """Return the first activities by role, as many as a limit allows, and how many are left out.

    Args:
        found: Activities, each with its role.
        limit: The most that are kept, those of all roles together.
    """
    pairs = list(found)
    kept: dict[str, list[Interval]] = {role: [] for role, _ in pairs}
    if len(pairs) > limit:
        pairs.sort(key=lambda pair: pair[1].start_ns)
    for role, interval in pairs[:limit]:
        kept[role].append(interval)
    return kept, max(0, len(pairs) - limit)


class ActivityLog:
    """The activities of one role or process.

    Args:
        limit: The most activities that are kept; further ones are counted.
    """

    def __init__(self, limit: int = 0) -> None:
        self.intervals: list[Interval] = []
        self.num_lost = 0
        self._limit = limit

    @property
    def is_on(self) -> bool:
        """Whether anything is kept."""
        return self._limit > 0

    def add(self, interval: Interval) -> None:
        """Keep an activity, or count it."""
        if len(self.intervals) < self._limit:
            self.intervals.append(interval)
        elif self.is_on:
            self.num_lost += 1

    @contextmanager
    def during(
        self, activity: str, place: Place = NOWHERE, detail: str = "", num_bytes: int = 0
    ) -> Iterator[None]:
        """Keep the time of a block, also if it raises."""
        start_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            if self.is_on:
                end_ns = time.perf_counter_ns()
                self.add(Interval(activity, start_ns, end_ns, place, detail, num_bytes))
