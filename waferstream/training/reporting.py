"""From the results of steps to what observers are told at the log steps of a run."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.coordinator import StepResult
from cstorch.utils.data.profiler import Profiler
from waferstream.training.observers import Observer, TrainingLog
from waferstream.training.stages import RunPlan, Stage
from wsc.core.hyper_schedules import HyperSchedule


class TrainingReporter:
    """Collects the steps of a run, and tells observers of them when a log step is done.

    ``rate`` is the schedule of the learning rate, None where it is constant.
    """

    def __init__(
        self,
        plan: RunPlan,
        profiler: Profiler,
        rate: HyperSchedule | None,
        observers: Sequence[Observer],
    ) -> None:
        self._plan = plan
        self._profiler = profiler
        self._rate = rate
        self._observers = observers
        self._untold: list[StepResult] = []
        self._told_s = 0.0  # of the profiler's time

    def take(self, results: Sequence[StepResult], stage: Stage) -> None:
        """Take the results of the newest steps of ``stage``."""
        self._untold.extend(results)
        if self._untold[-1].step not in self._plan.log_steps:
            return
        log = self._log(stage)
        self._untold.clear()
        self._told_s += log.seconds
        for observer in self._observers:
            observer.trained(log)

    def _log(self, stage: Stage) -> TrainingLog:
        newest, tracker = self._untold[-1], self._profiler.rate_tracker
        return TrainingLog(
            step=newest.step,
            losses=tuple((result.step, result.values[0]) for result in self._untold),
            gradient_norm=newest.gradient_norm,
            learning_rate=None if self._rate is None else self._rate.at(newest.step - 1),
            rate=tracker.rate,
            global_rate=tracker.global_rate,
            emulated_rate=self._profiler.emulated_rate,
            seconds=tracker.elapsed_s - self._told_s,
            timings=tuple(result.timing for result in self._untold),
            steps_left_in_stage=stage.last - newest.step,
            steps_left=self._plan.end - newest.step,
        )
