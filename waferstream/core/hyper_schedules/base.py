"""Base class of schedules, their registry, and the names of their schedulers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, TypeVar

from waferstream.core.config import Config

Key = Literal["lr", "weight_decay"]
"""A hyper-parameter that can be scheduled."""

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


def scheduler_name(schedule: str, key: Key) -> str:
    """Return the name of the scheduler that lets a hyper-parameter follow a schedule.

    A weight-decay scheduler has WD in place of LR.
    """
    return schedule if key == "lr" else f"{schedule.removesuffix('LR')}WD"


def between(initial: float, end: float, left: float) -> float:
    """Return ``initial`` where ``left`` is 1, ``end`` where it is 0, both exactly."""
    return float(initial * left + end * (1.0 - left))
