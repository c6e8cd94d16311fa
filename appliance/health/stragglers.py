"""Systems that compute slower than the others, from the times that nodes report anyway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, median_low

from waferstream.core.roles.role import Report

STEPS_IN_A_ROW = 3
"""A system that is slow for so many steps is a straggler; one late step is nothing."""


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
