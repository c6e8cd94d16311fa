"""Schedules made of other schedules, and schedules from a table."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from math import prod

from pydantic import Field, NonNegativeFloat, NonNegativeInt, ValidationInfo, field_validator

from waferstream.core.hyper_schedules.base import HyperSchedule, register


@register
class SequentialLR(HyperSchedule):
    """Schedules one after the other, each starting from its own step 0 at its milestone.

    Milestones are the running sums of the schedules' ``total_iters``; another explicit value is
    refused (Model Zoo 2.10). They must be given where a schedule that is not
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


@register
class ChainedLR(HyperSchedule):
    """The first schedule, times every other one over its initial value."""

    schedulers: tuple[HyperSchedule, ...] = Field(min_length=1)

    @field_validator("schedulers")
    @classmethod
    def _initial_values_not_zero(
        cls, schedules: tuple[HyperSchedule, ...]
    ) -> tuple[HyperSchedule, ...]:
        if any(_initial_value(schedule) == 0 for schedule in schedules[1:]):
            raise ValueError("schedulers after the first are factors: they must not begin at 0")
        return schedules

    def at(self, step: int) -> float:
        first, *others = self.schedulers
        return first.at(step) * prod(each.at(step) / _initial_value(each) for each in others)


def _initial_value(schedule: HyperSchedule) -> float:
    return float(getattr(schedule, "initial_learning_rate", schedule.at(0)))


@register
class ScalePerParamLR(HyperSchedule):
    """A schedule that each parameter group multiplies by its own ``adjust_learning_rate``."""

    scheduler: HyperSchedule

    def at(self, step: int) -> float:
        return self.scheduler.at(step)


class ScaledLR(HyperSchedule):
    """A schedule times the factor of one parameter group."""

    scheduler: HyperSchedule
    factor: NonNegativeFloat

    def at(self, step: int) -> float:
        return self.factor * self.scheduler.at(step)


class TabulatedLR(HyperSchedule):
    """The values of steps 0, 1, 2, ...: a function evaluated in the process of its user."""

    initial_learning_rate: NonNegativeFloat
    values: tuple[NonNegativeFloat, ...]

    def at(self, step: int) -> float:
        return self.values[step]


class ShiftedLR(HyperSchedule):
    """A schedule that has been followed for ``offset`` steps when training begins.

    A negative offset begins later; until then the value is the first one.
    """

    scheduler: HyperSchedule
    offset: int

    def at(self, step: int) -> float:
        return self.scheduler.at(max(0, step + self.offset))
