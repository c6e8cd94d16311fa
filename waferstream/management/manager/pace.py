"""How long workflows take by the clock of their host, learned from those that have ended.

A compile predicts the time of the emulated machine. The host takes another: its *pace* is the ratio
of both, and the spread of the ratios of ended workflows is the error bar of every prediction.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from waferstream.management.model.job import Phase
from waferstream.management.model.workflow import Workflow
from waferstream.management.schedule.state import RunTime

_UNKNOWN_S = 1800.0
"""The time of a run of which nothing is known yet: it is long for the schedule, and uncertain."""

_UNKNOWN_SPREAD = 10.0
_LEAST_SPREAD = 1.25
_MOST_LEARNED = 100  # ended workflows, the newest ones
_FEWEST_LEARNED = 3


class Pace:
    """Wall-clock seconds of the host by emulated second."""

    resize_s = 15.0
    """Time without progress of a resize: a process ends after its step, and another one starts."""

    def __init__(self) -> None:
        self._ratio = 1.0
        self._spread = _UNKNOWN_SPREAD

    def learn(self, workflows: Sequence[Workflow]) -> None:
        """Take note of how long ended workflows took beside what was predicted."""
        ended = [each for each in workflows if each.result is Phase.SUCCEEDED]
        newest = sorted(ended, key=lambda each: each.ended_s or 0.0)[-_MOST_LEARNED:]
        logs = [math.log(ratio) for each in newest if (ratio := _ratio(each)) is not None]
        if len(logs) >= _FEWEST_LEARNED:
            self._ratio = math.exp(statistics.median(logs))
            deciles = statistics.quantiles(logs, n=10)
            self._spread = max(_LEAST_SPREAD, math.exp((deciles[-1] - deciles[0]) / 2))

    def run_time(self, workflow: Workflow) -> RunTime:
        """Return how long the whole run of a workflow takes on each number of systems."""
        prediction, count = workflow.prediction, workflow.submission.num_csx
        if workflow.submission.is_service:
            return RunTime(((count, 10 * 365 * 86400.0),), 1.0)
        if prediction is None or not prediction.seconds:
            return RunTime(((count, _UNKNOWN_S),), _UNKNOWN_SPREAD)
        ratio, spread = self._of(workflow)
        points = sorted((size, ratio * seconds) for size, seconds in prediction.seconds.items())
        return RunTime(tuple(points), spread)

    def left(self, workflow: Workflow) -> float:
        """Return the share of a run that remains."""
        progress = workflow.progress
        if progress is None or progress.total_steps <= 0:
            return 1.0
        return max(0.0, 1.0 - progress.step / progress.total_steps)

    def _of(self, workflow: Workflow) -> tuple[float, float]:
        """Return ratio and spread: measured where the run says what remains, else learned."""
        progress, left = workflow.progress, self.left(workflow)
        predicted_s = _predicted_s(workflow)
        if progress is None or progress.remaining_s is None or not (left and predicted_s):
            return self._ratio, self._spread
        return max(1e-9, progress.remaining_s) / (left * predicted_s), _LEAST_SPREAD


def _predicted_s(workflow: Workflow) -> float | None:
    """Return the emulated seconds on the systems that a workflow has, or asks for."""
    return (
        None if workflow.prediction is None else workflow.prediction.seconds.get(workflow.num_csx)
    )


def _ratio(workflow: Workflow) -> float | None:
    """Return wall-clock by emulated seconds of an ended workflow; None if it does not tell."""
    predicted_s = _predicted_s(workflow)
    took_s = workflow.used_system_s / workflow.submission.num_csx
    return took_s / predicted_s if predicted_s and took_s > 0 else None
