"""Learning-rate schedulers, named as the vendor's (cluster_interface.md, section 3.5).

Arguments and formulas: the classes of the same names in ``wsc.core.hyper_schedules``. Call
``step()`` after ``optimizer.step()``, inside the traced function.
"""

from __future__ import annotations

from cstorch.optim.scheduler import Scheduler
from wsc.core import hyper_schedules


class LRScheduler(Scheduler):
    """Sets ``lr``."""

    key = "lr"

    def get_last_lr(self) -> list[float]:
        """The learning rate of each parameter group after the steps taken so far."""
        return [group["lr"] for group in self.optimizer.param_groups]


class ConstantLR(LRScheduler):
    """One value."""

    kind = hyper_schedules.ConstantLR


class LinearLR(LRScheduler):
    """From the initial to the end value along a line."""

    kind = hyper_schedules.LinearLR


class PolynomialLR(LRScheduler):
    """From the initial to the end value along a power of the steps left."""

    kind = hyper_schedules.PolynomialLR


class ExponentialLR(LRScheduler):
    """Times ``decay_rate`` every ``total_iters`` steps."""

    kind = hyper_schedules.ExponentialLR


class InverseExponentialTimeDecayLR(LRScheduler):
    """Divided by one plus a power of the step."""

    kind = hyper_schedules.InverseExponentialTimeDecayLR


class InverseSquareRootDecayLR(LRScheduler):
    """Divided by the square root of the step."""

    kind = hyper_schedules.InverseSquareRootDecayLR


class CosineDecayLR(LRScheduler):
    """From the initial to the end value along half a cosine."""

    kind = hyper_schedules.CosineDecayLR


class CosineAnnealingLR(LRScheduler):
    """Between the initial value and ``eta_min`` along a cosine."""

    kind = hyper_schedules.CosineAnnealingLR


class StepLR(LRScheduler):
    """Times ``gamma`` every ``step_size`` steps."""

    kind = hyper_schedules.StepLR


class MultiStepLR(LRScheduler):
    """Times ``gamma`` at each milestone."""

    kind = hyper_schedules.MultiStepLR


class PiecewiseConstantLR(LRScheduler):
    """The next of several values at each milestone."""

    kind = hyper_schedules.PiecewiseConstantLR


class SequentialLR(LRScheduler):
    """One scheduler after another."""

    kind = hyper_schedules.SequentialLR
