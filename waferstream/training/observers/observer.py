"""What observers of a run receive, and who tells them; nothing they do changes a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from appliance.coordinator.step_results import StepResult
from cstorch.loop.profiler import Profiler
from waferstream.core.hyper_schedules.base import HyperSchedule
from waferstream.core.messages.watch import TensorNorms, global_norms
from waferstream.core.units import seconds
from waferstream.machine.attribution import StepTiming, TimedSteps
from waferstream.training.run_plan import RunPlan, Stage

TRAIN_LOSS, EVAL_LOSS = "train/loss", "eval/loss"


@dataclass(frozen=True)
class TrainingLog:
    """State of training at a log step; ``losses`` since the previous log step."""

    step: int
    losses: tuple[tuple[int, float], ...]
    gradient_norm: float | None
    tensor_norms: Mapping[str, TensorNorms]  # by parameter, where they are to be logged
    learning_rate: float | None
    loss_scale: float | None  # of the next step, if it is dynamic and to be logged
    rate: float  # samples/s, measured, smoothed
    global_rate: float
    emulated_rate: float
    seconds: float  # measured, for the steps since the last log step
    timings: tuple[StepTiming, ...]
    steps_left_in_stage: int
    steps_left: int
    stragglers: tuple[str, ...] = ()  # one name for each step
    link_waits: tuple[Mapping[str, float], ...] = ()  # seconds by link, of each step


@dataclass(frozen=True)
class EvaluationLog:
    """Result of an evaluation: mean loss over its batches, the model's metrics, and throughput."""

    step: int
    batches: int
    loss: float
    metrics: Mapping[str, float]  # by name
    rate: float  # samples/s, measured

    @property
    def scalars(self) -> Mapping[str, float]:
        """Loss and metrics by the names of their curves."""
        return {EVAL_LOSS: self.loss, **self.metrics}


def scalars_of(log: TrainingLog) -> dict[str, float]:
    """Return the numbers of a log step beside the losses, by the names of their curves.

    Those of ``attribution/`` are the shares of the emulated time since the log step before.
    """
    found: dict[str, float | None] = {
        "train/rate": log.rate,
        "train/emulated_rate": log.emulated_rate,
        "train/gradient_norm": log.gradient_norm,
        "train/lr": log.learning_rate,
        "train/loss_scale": log.loss_scale,
    }
    if log.timings:
        mean = TimedSteps.of(log.timings).mean_step()
        found["attribution/step_s"] = seconds(mean.duration_ps)
        shares = mean.attribution.shares()
        found |= {f"attribution/{cause}": share for cause, share in shares.items()}
    found |= _norms(log.tensor_norms)
    return {name: value for name, value in found.items() if value is not None}


def _norms(by_parameter: Mapping[str, TensorNorms]) -> dict[str, float]:
    """Return the norms of weights and gradients by the names of their curves."""
    if not by_parameter:
        return {}
    total = global_norms(by_parameter)
    found = {"model_wise_params_norm": total.weight, "model_wise_grad_norm": total.gradient}
    for name, norms in by_parameter.items():
        found[f"per_layer_params_norm/{name}"] = norms.weight
        found[f"per_layer_grad_norm/{name}"] = norms.gradient
    return found


class Observer(Protocol):
    """Receiver of a run's events, in order; methods must return quickly."""

    def began(self, first_step: int, last_step: int) -> None:
        """Receive the steps that training will do."""

    def trained(self, log: TrainingLog) -> None:
        """Receive a finished log step."""

    def evaluated(self, log: EvaluationLog) -> None:
        """Receive a finished evaluation."""

    def summarized(self, step: int, numbers: Mapping[str, float]) -> None:
        """Receive what a listener has computed in a step of training, by name."""

    def close(self) -> None:
        """Receive the end of the run, successful or not."""


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
            observer.began(plan.done + 1, plan.end)

    def take(
        self,
        results: Sequence[StepResult],
        stage: Stage,
        position: int = 0,
        *,
        is_last: bool = False,
    ) -> None:
        """Take the results of the newest steps of ``stage``; ``position`` is that of the loss.

        The last ones, of a run that is about to be ended, are told to observers at once.
        """
        self._position = position
        self._unreported.extend(results)
        if not is_last and self._unreported[-1].step not in self._plan.log_steps:
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
