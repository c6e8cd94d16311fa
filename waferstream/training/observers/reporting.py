"""The observer that tells the management how far a launch is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from waferstream.core.roles.installation import Installation
from waferstream.management.model.workflow import Progress
from waferstream.training.launch import Reporter
from waferstream.training.observers.observer import EvaluationLog, TrainingLog
from waferstream.training.observers.telemetry import TelemetryMeter

_EVERY_S = 1.0


class Reporting:
    """Observer that reports progress, once a second at most but for the first and last step.

    Args:
        reporter: What it tells.
        batch_size: Samples of a step.
        meter: Knows what the roles of the run do.
        training: Returns the program that trains; None where nothing is emulated.
    """

    def __init__(
        self,
        reporter: Reporter,
        batch_size: int,
        meter: TelemetryMeter,
        training: Callable[[], Installation | None],
    ) -> None:
        self._reporter = reporter
        self._batch_size = batch_size
        self._meter = meter
        self._training = training
        self._told_at_s = 0.0  # of time.monotonic()

    def began(self, first_step: int, last_step: int) -> None:
        self._reporter.progressed(Progress(step=first_step - 1, total_steps=last_step))

    def trained(self, log: TrainingLog) -> None:
        self._meter.count(log)
        now_s = time.monotonic()
        if log.steps_left and now_s - self._told_at_s < _EVERY_S:
            return
        self._told_at_s = now_s
        progress = Progress(
            step=log.step,
            total_steps=log.step + log.steps_left,
            loss=log.losses[-1][1],
            samples_per_s=log.rate,
            emulated_samples_per_s=log.emulated_rate,
            remaining_s=log.steps_left * self._batch_size / log.global_rate,
        )
        self._reporter.progressed(progress)
        self._reporter.measured(self._meter.telemetry(log, self._training()))

    def evaluated(self, log: EvaluationLog) -> None:
        """Do nothing: an evaluation gets the run no further."""

    def summarized(self, step: int, numbers: Mapping[str, float]) -> None:
        """Do nothing: the event files have what listeners compute."""

    def close(self) -> None:
        """Do nothing: the exit code of the process says how the run has ended."""
