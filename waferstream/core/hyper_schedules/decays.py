"""Schedules that rise or fall once: constants, lines, powers, exponentials, cosines, stairs."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from math import ceil, cos, floor, pi, sqrt
from typing import Annotated

from pydantic import (
    AfterValidator,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from waferstream.core.hyper_schedules.base import HyperSchedule, between, register


def _increasing(milestones: tuple[int, ...]) -> tuple[int, ...]:
    if any(later <= earlier for earlier, later in pairwise(milestones)):
        raise ValueError("milestones must increase")
    return milestones


Milestones = Annotated[tuple[PositiveInt, ...], AfterValidator(_increasing)]


@register
class ConstantLR(HyperSchedule):
    """One value at every step; ``total_iters`` is only its length in a SequentialLR."""

    learning_rate: NonNegativeFloat
    total_iters: NonNegativeInt | None = None

    def at(self, step: int) -> float:  # noqa: ARG002
        return self.learning_rate


@register
class LinearLR(HyperSchedule):
    """end + (initial - end) (1 - min(t, T) / T); with ``cycle``, T as in PolynomialLR."""

    initial_learning_rate: NonNegativeFloat
    end_learning_rate: NonNegativeFloat
    total_iters: NonNegativeInt
    cycle: bool = False

    def at(self, step: int) -> float:
        left = 1.0 - _progress(step, self.total_iters, self.cycle)
        return between(self.initial_learning_rate, self.end_learning_rate, left)


@register
class PolynomialLR(HyperSchedule):
    """end + (initial - end) (1 - min(t, T) / T) ^ power.

    With ``cycle`` the decay never ends: T is replaced by its smallest multiple that is not below
    t: the value rises again after every T steps, each time less (Keras PolynomialDecay).
    """

    initial_learning_rate: NonNegativeFloat
    end_learning_rate: NonNegativeFloat
    total_iters: NonNegativeInt
    power: NonNegativeFloat = 1.0
    cycle: bool = False

    def at(self, step: int) -> float:
        left = (1.0 - _progress(step, self.total_iters, self.cycle)) ** self.power
        return between(self.initial_learning_rate, self.end_learning_rate, left)


@register
class ExponentialLR(HyperSchedule):
    """initial * decay_rate ^ (t / T); ``staircase`` rounds t / T down (Keras ExponentialDecay)."""

    initial_learning_rate: NonNegativeFloat
    total_iters: PositiveInt
    decay_rate: PositiveFloat
    staircase: bool = False

    def at(self, step: int) -> float:
        periods = step / self.total_iters
        exponent = floor(periods) if self.staircase else periods
        return float(self.initial_learning_rate * self.decay_rate**exponent)


@register
class InverseExponentialTimeDecayLR(HyperSchedule):
    """initial / (1 + decay_rate * t ^ step_exponent / T); ``staircase`` rounds the quotient down.

    With exponent 1 this is Keras InverseTimeDecay.
    """

    initial_learning_rate: NonNegativeFloat
    step_exponent: PositiveFloat
    total_iters: PositiveInt
    decay_rate: NonNegativeFloat
    staircase: bool = False

    def at(self, step: int) -> float:
        periods = step**self.step_exponent / self.total_iters
        periods = floor(periods) if self.staircase else periods
        return float(self.initial_learning_rate / (1.0 + self.decay_rate * periods))


@register
class InverseSquareRootDecayLR(HyperSchedule):
    """initial * scale / sqrt(max(t, warmup_steps)) (Vaswani et al. 2017, section 5.3)."""

    initial_learning_rate: NonNegativeFloat = 1.0
    scale: NonNegativeFloat = 1.0
    warmup_steps: PositiveInt = 1

    def at(self, step: int) -> float:
        return self.initial_learning_rate * self.scale / sqrt(max(step, self.warmup_steps))


@register
class CosineDecayLR(HyperSchedule):
    """end + (initial - end) (1 + cos(pi min(t, T) / T)) / 2 (Keras CosineDecay)."""

    initial_learning_rate: NonNegativeFloat
    end_learning_rate: NonNegativeFloat
    total_iters: NonNegativeInt

    def at(self, step: int) -> float:
        left = (1.0 + cos(pi * _progress(step, self.total_iters))) / 2.0
        return between(self.initial_learning_rate, self.end_learning_rate, left)


@register
class CosineAnnealingLR(HyperSchedule):
    """eta_min + (initial - eta_min) (1 + cos(pi t / T_max)) / 2; rises again after T_max.

    Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5, without restarts.
    """

    initial_learning_rate: NonNegativeFloat
    T_max: PositiveInt
    eta_min: NonNegativeFloat = 0.0

    def at(self, step: int) -> float:
        left = (1.0 + cos(pi * step / self.T_max)) / 2.0
        return between(self.initial_learning_rate, self.eta_min, left)


@register
class StepLR(HyperSchedule):
    """initial * gamma ^ floor(t / step_size)."""

    initial_learning_rate: NonNegativeFloat
    step_size: PositiveInt
    gamma: NonNegativeFloat

    def at(self, step: int) -> float:
        return float(self.initial_learning_rate * self.gamma ** (step // self.step_size))


@register
class MultiStepLR(HyperSchedule):
    """initial * gamma ^ (number of milestones that t has reached)."""

    initial_learning_rate: NonNegativeFloat
    gamma: NonNegativeFloat
    milestones: Milestones

    def at(self, step: int) -> float:
        reached = bisect_right(self.milestones, step)
        return float(self.initial_learning_rate * self.gamma**reached)


@register
class PiecewiseConstantLR(HyperSchedule):
    """learning_rates[k], where k is the number of milestones that t has reached."""

    learning_rates: tuple[NonNegativeFloat, ...]
    milestones: Milestones

    @field_validator("milestones")
    @classmethod
    def _one_less_than_rates(
        cls, milestones: tuple[int, ...], info: ValidationInfo
    ) -> tuple[int, ...]:
        if len(milestones) + 1 != len(info.data.get("learning_rates", ())):
            raise ValueError("one milestone less than values is needed")
        return milestones

    def at(self, step: int) -> float:
        return self.learning_rates[bisect_right(self.milestones, step)]


@register
class MultiplicativeLR(HyperSchedule):
    """initial * coefficient ^ t."""

    initial_learning_rate: NonNegativeFloat
    coefficient: NonNegativeFloat

    def at(self, step: int) -> float:
        return float(self.initial_learning_rate * self.coefficient**step)


def _progress(step: int, total_iters: int, cycle: bool = False) -> float:
    """Return the share of the decay that is done, in [0, 1]; 1 for a decay of no steps."""
    if total_iters == 0:
        return 1.0
    if cycle:
        total_iters *= max(1, ceil(step / total_iters))
    return min(step / total_iters, 1.0)
