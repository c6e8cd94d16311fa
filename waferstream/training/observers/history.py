"""Observers that keep what a run has computed: in memory for its summary, and in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

from waferstream.machine.attribution import TimedSteps
from waferstream.reports.run.history import HistoryFile
from waferstream.reports.run.summary import Evaluation
from waferstream.training.observers.observer import EvaluationLog, TrainingLog

Point = TypeVar("Point", bound=tuple[int, *tuple[float, ...]])
"""A step and its values."""


class History:
    """Record of a run for its figure and its summary."""

    def __init__(self) -> None:
        self.train: list[tuple[int, float]] = []
        self.evaluations: list[Evaluation] = []
        self.rates: list[tuple[int, float, float]] = []
        self.timed = TimedSteps()
        self.seconds = 0.0
        self.samples = 0
        self.stragglers: Counter[str] = Counter()  # steps by system
        self.link_waits: dict[str, float] = {}  # seconds by link

    def began(self, first_step: int, last_step: int) -> None:
        """Do nothing: steps count when they are done."""

    def trained(self, log: TrainingLog) -> None:
        first = log.losses[0][0]  # steps from here on that have run before are run again
        _forget(self.train, first)
        self.train.extend(log.losses)
        _forget(self.rates, first)
        self.rates.append((log.step, log.rate, log.emulated_rate))
        self.timed.add(log.timings)
        self.seconds += log.seconds
        self.stragglers.update(log.stragglers)
        for waits in log.link_waits:
            for link, seconds in waits.items():
                self.link_waits[link] = self.link_waits.get(link, 0.0) + seconds
        self.samples += sum(timing.batch_size for timing in log.timings)

    def evaluated(self, log: EvaluationLog) -> None:
        self.evaluations.append((log.step, log.loss, log.metrics))

    def summarized(self, step: int, numbers: Mapping[str, float]) -> None:
        """Do nothing: the event files have what listeners compute."""

    def close(self) -> None:
        """Do nothing: no file is open."""


def _forget(curve: list[Point], first: int) -> None:
    """Remove the points of a curve from a step on, which is its end."""
    while curve and curve[-1][0] >= first:
        curve.pop()


class Recorder:
    """Writer of the model's history; ``about`` describes the run in its first line."""

    def __init__(self, file: HistoryFile, about: Mapping[str, Any]) -> None:
        self._file = file
        self._head: list[Mapping[str, Any]] = [about]  # until the first line of the run

    def began(self, first_step: int, last_step: int) -> None:
        """Do nothing: steps count when they are done."""

    def trained(self, log: TrainingLog) -> None:
        numbers = {
            "gradient_norm": log.gradient_norm,
            "learning_rate": log.learning_rate,
            "loss_scale": log.loss_scale,
            "rate": log.rate,
            "emulated_rate": log.emulated_rate or None,
        }
        known = {name: value for name, value in numbers.items() if value is not None}
        lines: list[Mapping[str, Any]] = [{"step": s, "loss": loss} for s, loss in log.losses]
        self._append([*lines[:-1], {**lines[-1], **known}])

    def evaluated(self, log: EvaluationLog) -> None:
        self._append([{"step": log.step, "eval_loss": log.loss, **log.metrics}])

    def summarized(self, step: int, numbers: Mapping[str, float]) -> None:
        """Do nothing: the event files have what listeners compute."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _append(self, lines: list[Mapping[str, Any]]) -> None:
        self._file.append([*self._head, *lines])
        self._head = []
