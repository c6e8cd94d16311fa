"""Hyper-parameters as functions of the step: learning-rate and weight-decay schedules.

To add one, write a class here and decorate it with ``register``: its schedulers in
``cstorch.optim`` and its entry in params.yaml follow from it.

Names and arguments are those of the vendor's learning-rate schedulers (cluster_interface.md,
section 3.5). A schedule is data: it has no counter and may be evaluated at any step, in any order,
in any process. ``step`` counts from 0 and is the number of updates already done, as in
``torch.optim.lr_scheduler``, whose values these are where torch has the same class.

In the formulas t is the step and T is ``total_iters``.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate, pairwise
from math import ceil, cos, floor, pi, sqrt
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from wsc.core.config import Config, validate
from wsc.core.errors import ConfigError, did_you_mean


def _increasing(milestones: tuple[int, ...]) -> tuple[int, ...]:
    if any(later <= earlier for earlier, later in pairwise(milestones)):
        raise ValueError("milestones must increase")
    return milestones


Milestones = Annotated[tuple[PositiveInt, ...], AfterValidator(_increasing)]


Schedule = TypeVar("Schedule", bound="HyperSchedule")


class HyperSchedule(Config):
    """A hyper-parameter as a function of the step; immutable and comparable by value."""

    @abstractmethod
    def at(self, step: int) -> float:
        """Return the value after ``step`` updates (0, 1, 2, ...)."""


SCHEDULES: dict[str, type[HyperSchedule]] = {}
"""All schedules by class name."""


def register(kind: type[Schedule]) -> type[Schedule]:
    """Make a schedule known to params.yaml and to the schedulers of ``cstorch.optim``."""
    SCHEDULES[kind.__name__] = kind
    return kind


def build_schedule(class_name: str, args: Mapping[str, Any], where: str) -> HyperSchedule:
    """Build a schedule from plain data, as written in params.yaml.

    The ``schedulers`` of a SequentialLR are schedules or ``{class name: args}`` mappings. ``where``
    names the place in the configuration. ConfigError for an unknown class or a wrong argument.
    """
    kind = SCHEDULES.get(class_name)
    if kind is None:
        raise ConfigError(
            f"unknown schedule {class_name!r}",
            code="unknown-schedule",
            where=where,
            rule=f"known schedules: {', '.join(SCHEDULES)}",
            remedy=did_you_mean(class_name, SCHEDULES),
        )
    if kind is SequentialLR and isinstance(args.get("schedulers"), list | tuple):
        parts = [
            _build_part(part, f"{where}.schedulers[{index}]")
            for index, part in enumerate(args["schedulers"])
        ]
        args = {**args, "schedulers": parts}
    return validate(kind, args, where)


def _build_part(part: object, where: str) -> HyperSchedule:
    if isinstance(part, HyperSchedule):
        return part
    if not isinstance(part, Mapping) or len(part) != 1:
        raise ConfigError(
            "an entry of schedulers must be a schedule",
            code="not-a-schedule",
            where=where,
            value=part,
            rule="a mapping {class name: arguments}",
        )
    ((class_name, args),) = part.items()
    return build_schedule(str(class_name), args or {}, f"{where}.{class_name}")


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
        return _between(self.initial_learning_rate, self.end_learning_rate, left)


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
        return _between(self.initial_learning_rate, self.end_learning_rate, left)


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
        return _between(self.initial_learning_rate, self.end_learning_rate, left)


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
        return _between(self.initial_learning_rate, self.eta_min, left)


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

    milestones: Milestones
    learning_rates: tuple[NonNegativeFloat, ...]

    @field_validator("learning_rates")
    @classmethod
    def _one_more_than_milestones(
        cls, rates: tuple[float, ...], info: ValidationInfo
    ) -> tuple[float, ...]:
        if len(rates) != len(info.data.get("milestones", ())) + 1:
            raise ValueError("one more learning rate than milestones is needed")
        return rates

    def at(self, step: int) -> float:
        return self.learning_rates[bisect_right(self.milestones, step)]


@register
class SequentialLR(HyperSchedule):
    """Schedules one after the other, each starting from its own step 0 at its milestone.

    Milestones are the running sums of the schedules' ``total_iters``; another explicit value is
    refused (cluster_interface.md, section 2.2). They must be given where a schedule that is not
    the last has no ``total_iters``.
    """

    schedulers: tuple[HyperSchedule, ...] = Field(min_length=1)
    milestones: tuple[NonNegativeInt, ...] = ()

    @field_validator("milestones")
    @classmethod
    def _running_sums(cls, given: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        *leading, _ = info.data.get("schedulers", (None,))
        lengths = [getattr(schedule, "total_iters", None) for schedule in leading]
        if None in lengths:
            if len(given) != len(leading) or list(given) != sorted(given):
                raise ValueError(
                    f"{len(leading)} rising milestones are needed, because not every schedule "
                    "before the last has total_iters"
                )
            return given
        sums = tuple(accumulate(length for length in lengths if length is not None))
        if given and given != sums:
            raise ValueError(f"the running sums of total_iters are {list(sums)}; leave it out")
        return sums

    def at(self, step: int) -> float:
        current = bisect_right(self.milestones, step)
        start = self.milestones[current - 1] if current else 0
        return self.schedulers[current].at(step - start)


def _progress(step: int, total_iters: int, cycle: bool = False) -> float:
    """Return the share of the decay that is done, in [0, 1]; 1 for a decay of no steps."""
    if total_iters == 0:
        return 1.0
    if cycle:
        total_iters *= max(1, ceil(step / total_iters))
    return min(step / total_iters, 1.0)


def _between(initial: float, end: float, left: float) -> float:
    """Return ``initial`` where ``left`` is 1, ``end`` where it is 0, both exactly."""
    return float(initial * left + end * (1.0 - left))
