"""What a management does, in the numbers that Prometheus collects."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from waferstream.management.model.job import priority_text
from waferstream.management.model.operations import ClusterView
from waferstream.management.model.telemetry import Sample
from waferstream.management.model.workflow import Stage, Workflow
from waferstream.management.schedule.actions import Expected

_NEWEST = 500
"""Decisions and starts from which the numbers follow."""

_QUANTILES = {"0.5": 50, "0.9": 90, "0.99": 99}


class Statistics:
    """How fast the newest decisions were, and how good the newest expected starts."""

    def __init__(self) -> None:
        self._count = 0
        self._decisions_s: deque[float] = deque(maxlen=_NEWEST)
        self._starts: deque[tuple[float, bool]] = deque(maxlen=_NEWEST)

    def decided(self, seconds: float) -> None:
        """Note how long a decision took."""
        self._count += 1
        self._decisions_s.append(seconds)

    def started(self, expected: Expected, started_s: float) -> None:
        """Note a start, and when it was expected."""
        is_inside = expected.earliest_s <= started_s <= expected.latest_s
        self._starts.append((abs(started_s - expected.start_s), is_inside))

    def samples(self) -> Iterator[Sample]:
        """Yield the numbers."""
        yield Sample(metric="decisions_total", value=self._count)
        if len(self._decisions_s) > 1:
            percentiles = statistics.quantiles(self._decisions_s, n=100, method="inclusive")
            for name, percent in _QUANTILES.items():
                value = percentiles[percent - 1]
                yield Sample(metric="decision_seconds", value=value, labels=(name,))
        if self._starts:
            errors_s, are_inside = zip(*self._starts, strict=True)
            mean_s = statistics.fmean(errors_s)
            yield Sample(metric="expected_start_error_seconds", value=mean_s)
            ratio = statistics.fmean(are_inside)
            yield Sample(metric="expected_start_inside_ratio", value=ratio)


def numbers_of(
    workflows: Sequence[Workflow], view: ClusterView, events: int, now_s: float
) -> Iterator[Sample]:
    """Yield the numbers of the queue and of the inventory.

    Args:
        workflows: Those that have not ended.
        view: The inventory, and who holds what.
        events: The number of the newest event.
        now_s: The time.
    """
    waiting = [each for each in workflows if each.placement is None]
    running = [each for each in workflows if each.placement is not None]
    yield from _by_priority("queued_workflows", waiting)
    yield from _by_priority("running_workflows", running)
    longest_s = max((now_s - each.waits_since_s for each in waiting), default=0.0)
    yield Sample(metric="longest_wait_seconds", value=longest_s)
    for metric, nodes in (("systems", view.inventory.systems), ("groups", view.inventory.groups)):
        for state, count in sorted(Counter(node.state for node in nodes).items()):
            yield Sample(metric=metric, value=count, labels=(state,))
    for system in view.inventory.systems:
        is_busy = float(system.name in view.holders)
        yield Sample(metric="system_busy", value=is_busy, labels=(system.name,))
    yield Sample(metric="events_total", value=events)


def _by_priority(metric: str, workflows: Sequence[Workflow]) -> Iterator[Sample]:
    """Yield the number of workflows of each bucket of priorities, zeros too."""
    counts = Counter(priority_text(each.submission.priority).split()[0] for each in workflows)
    for bucket in ("P0", "P1", "P2", "P3"):
        yield Sample(metric=metric, value=counts[bucket], labels=(bucket,))


def has_process(workflow: Workflow) -> bool:
    """Return whether a workflow may tell numbers of its own."""
    return workflow.stage in (Stage.RUNNING, Stage.ENDING)
