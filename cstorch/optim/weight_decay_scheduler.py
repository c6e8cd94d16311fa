"""Weight-decay schedulers: the twins of those in ``lr_scheduler`` (cluster_interface.md, 3.5).

Their arguments say ``val`` where those of a learning rate say ``learning_rate``: ``val``, ``vals``,
``initial_val``, ``end_val``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cstorch.optim.scheduler import Scheduler
from wsc.core import hyper_schedules
from wsc.core.hyper_schedules import HyperSchedule

_ARGUMENTS = {
    "val": "learning_rate",
    "vals": "learning_rates",
    "initial_val": "initial_learning_rate",
    "end_val": "end_learning_rate",
}


class WeightDecayScheduler(Scheduler):
    """Sets ``weight_decay``."""

    key = "weight_decay"

    def _build(self, args: Mapping[str, Any]) -> HyperSchedule:
        return super()._build({_ARGUMENTS.get(key, key): value for key, value in args.items()})


class ConstantWD(WeightDecayScheduler):
    """One value."""

    kind = hyper_schedules.ConstantLR


class LinearWD(WeightDecayScheduler):
    """From the initial to the end value along a line."""

    kind = hyper_schedules.LinearLR


class PolynomialWD(WeightDecayScheduler):
    """From the initial to the end value along a power of the steps left."""

    kind = hyper_schedules.PolynomialLR


class ExponentialWD(WeightDecayScheduler):
    """Times ``decay_rate`` every ``total_iters`` steps."""

    kind = hyper_schedules.ExponentialLR


class InverseExponentialTimeDecayWD(WeightDecayScheduler):
    """Divided by one plus a power of the step."""

    kind = hyper_schedules.InverseExponentialTimeDecayLR


class InverseSquareRootDecayWD(WeightDecayScheduler):
    """Divided by the square root of the step."""

    kind = hyper_schedules.InverseSquareRootDecayLR


class CosineDecayWD(WeightDecayScheduler):
    """From the initial to the end value along half a cosine."""

    kind = hyper_schedules.CosineDecayLR


class CosineAnnealingWD(WeightDecayScheduler):
    """Between the initial value and ``eta_min`` along a cosine."""

    kind = hyper_schedules.CosineAnnealingLR


class StepWD(WeightDecayScheduler):
    """Times ``gamma`` every ``step_size`` steps."""

    kind = hyper_schedules.StepLR


class MultiStepWD(WeightDecayScheduler):
    """Times ``gamma`` at each milestone."""

    kind = hyper_schedules.MultiStepLR


class PiecewiseConstantWD(WeightDecayScheduler):
    """The next of several values at each milestone."""

    kind = hyper_schedules.PiecewiseConstantLR


class SequentialWD(WeightDecayScheduler):
    """One scheduler after another."""

    kind = hyper_schedules.SequentialLR
