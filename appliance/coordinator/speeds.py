"""Measured speeds of systems: who is slower than the others, and takes fewer micro-batches.

A round ends with the system that needs longest. Its micro-batches are dealt out one by one, each to
the system that would have computed it first. Neither weights nor emulated time depend on who
computes a micro-batch.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median_low

from waferstream.core.program.schedule import Rounds
from waferstream.core.roles.activities import Interval
from waferstream.core.roles.names import node_name
from waferstream.core.roles.role import Report

LEAST_GAIN = 0.1
"""Other shares must make a round so much shorter, else noise would move micro-batches about."""

STEPS_IN_A_ROW = 3
"""A system that is slow for so many steps is a straggler; one late step is nothing."""


class Shares:
    """The shares of the next job, from what the systems have reported about the last one.

    Args:
        is_measured: Whether speeds count; all shares are equal otherwise.
    """

    def __init__(self, *, is_measured: bool) -> None:
        self.current: tuple[int, ...] = ()
        """Micro-batches of each system in a round; empty: equal ones."""
        self._is_measured = is_measured

    def note(self, reports: Sequence[Report], installed: Rounds, most: int) -> None:
        """Note the reports of a job.

        Args:
            reports: Of all roles.
            installed: The rounds with equal shares.
            most: The most micro-batches that a system takes in a round.
        """
        speeds = speeds_of(reports)
        nodes = [node_name(index) for index in range(installed.num_nodes)]
        if not self._is_measured or not speeds.keys() >= set(nodes):
            return
        measured = [speeds[name] for name in nodes]
        before = self.current or (installed.per_node,) * installed.num_nodes
        after = dealt_out(min(installed.num_micro_batches, sum(before)), measured, most)
        if _slowest_s(after, measured) < (1 - LEAST_GAIN) * _slowest_s(before, measured):
            self.current = after


def speeds_of(reports: Sequence[Report]) -> Mapping[str, float]:
    """Return the kernels per second of each system while it computes, lanes side by side."""
    found = {}
    for report in reports:
        kernels = [each for each in report.intervals if each.activity == "compute"]
        if kernels:
            found[report.role] = len(kernels) / _busy_s(kernels)
    return found


def dealt_out(count: int, speeds: Sequence[float], most: int) -> tuple[int, ...]:
    """Return how many micro-batches each system takes, at least one and at most ``most``."""
    shares = [1] * len(speeds)
    ends = [(2 / speed, index) for index, speed in enumerate(speeds) if most > 1]
    heapq.heapify(ends)
    for _ in range(count - len(speeds)):
        if not ends:
            break
        _, index = heapq.heappop(ends)
        shares[index] += 1
        if shares[index] < most:
            heapq.heappush(ends, ((shares[index] + 1) / speeds[index], index))
    return tuple(shares)


def _slowest_s(shares: Sequence[int], speeds: Sequence[float]) -> float:
    """Return how long a micro-batch takes on average, in units of a kernel."""
    pairs = zip(shares, speeds, strict=True)
    return max(share / speed for share, speed in pairs) / sum(shares)


def _busy_s(intervals: Sequence[Interval]) -> float:
    """Return the seconds in which at least one interval runs."""
    busy_ns, end_ns = 0, 0
    for each in sorted(intervals, key=lambda interval: interval.start_ns):
        busy_ns += max(0, each.end_ns - max(each.start_ns, end_ns))
        end_ns = max(end_ns, each.end_ns)
    return max(busy_ns, 1) / 1e9


class Stragglers:
    """The systems that are slow now, and for how many steps they have been.

    Args:
        factor: How many times as long as the median system a slow one computes; None looks for
            none.
    """

    def __init__(self, factor: float | None) -> None:
        self._factor = factor
        self._slow_steps: Counter[str] = Counter()  # in a row

    def take(self, reports: Sequence[Report], steps: Iterable[int]) -> dict[int, tuple[str, ...]]:
        """Return the stragglers of each step of a job that has some.

        Real time counts, and the mean over segments and micro-batches: all systems compute the same
        ones, though not equally many.
        """
        if self._factor is None:
            return {}
        found: dict[int, tuple[str, ...]] = {}
        spent = [(report.role, _seconds(report)) for report in reports]
        for step in steps:
            means = {role: fmean(by_step[step]) for role, by_step in spent if step in by_step}
            if not means:
                continue
            limit = self._factor * median_low(means.values())
            slow = {role for role, mean in means.items() if mean > limit}
            self._slow_steps = Counter({role: self._slow_steps[role] + 1 for role in slow})
            late = sorted(r for r, n in self._slow_steps.items() if n >= STEPS_IN_A_ROW)
            if late:
                found[step] = tuple(late)
        return found


def _seconds(report: Report) -> dict[int, list[float]]:
    """Return the durations of a node's kernels by step."""
    found: dict[int, list[float]] = {}
    for interval in report.intervals:
        if interval.activity == "compute":
            duration_s = (interval.end_ns - interval.start_ns) / 1e9
            found.setdefault(interval.step, []).append(duration_s)
    return found
