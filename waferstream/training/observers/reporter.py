"""Collect the results of steps and tell observers at log steps."""

from __future__ import annotations

from collections.abc import Sequence

from appliance.coordinator.step_results import StepResult
from cstorch.loop.profiler import Profiler
from waferstream.core.hyper_schedules.base import HyperSchedule
from waferstream.training.observers.observer import Observer, TrainingLog
from waferstream.training.run_plan import RunPlan, Stage


class TrainingReporter:
    """Collector of a run's steps; notifies observers at log steps.

    ``rate`` is the schedule of the learning rate, None where it is constant; ``logs_scale`` asks
    for a dynamic loss scale.
    """

    def __init__(
        self,
        plan: RunPlan,
        profiler: Profiler,
        rate: HyperSchedule | None,
        observers: Sequence[Observer],
        logs_scale: bool = True,
    ) -> None:
        self._logs_scale = logs_scale
        self._plan = plan
        self._profiler = profiler
        self._rate = rate
        self._observers = observers
        self._unreported: list[StepResult] = []
        self._position = 0  # of the loss among the results
        self._reported_s = 0.0  # of the profiler's time
        for observer in observers:
            observer.began(plan.start + 1, plan.end)

    def take(self, results: Sequence[StepResult], stage: Stage, position: int = 0) -> None:
        """Take the results of the newest steps of ``stage``; ``position`` is that of the loss."""
        self._position = position
        self._unreported.extend(results)
        if self._unreported[-1].step not in self._plan.log_steps:
            return
        log = self._log(stage)
        self._unreported.clear()
        self._reported_s += log.seconds
        for observer in self._observers:
            observer.trained(log)

    def forget_after(self, step: int) -> None:
        """Forget results of steps that run again."""
        self._unreported = [result for result in self._unreported if result.step <= step]

    def _log(self, stage: Stage) -> TrainingLog:
        newest, tracker = self._unreported[-1], self._profiler.rate_tracker
        scale = newest.loss_scale
        applied = newest.step if scale is None else newest.step - scale.num_skipped_steps
        return TrainingLog(
            step=newest.step,
            losses=tuple(
                (result.step, result.scalar(self._position)) for result in self._unreported
            ),
            gradient_norm=newest.gradient_norm,
            tensor_norms=newest.tensor_norms,
            learning_rate=None if self._rate is None else self._rate.at(max(applied - 1, 0)),
            loss_scale=scale.scale if scale and self._logs_scale else None,
            rate=tracker.rate,
            global_rate=tracker.global_rate,
            emulated_rate=self._profiler.emulated_rate,
            seconds=tracker.elapsed_s - self._reported_s,
            timings=tuple(result.timing for result in self._unreported if result.timing),
            stragglers=tuple(name for result in self._unreported for name in result.stragglers),
            link_waits=tuple(result.link_waits for result in self._unreported),
            steps_left_in_stage=stage.last - newest.step,
            steps_left=self._plan.end - newest.step,
        )
