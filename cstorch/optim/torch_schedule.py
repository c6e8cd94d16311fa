"""Schedules of torch over an optimizer that trains in MemoryX.

MemoryX evaluates a schedule by itself, and gets the values: a copy of the scheduler is stepped here
as far as a run needs, and its learning rates are a table. So every scheduler of torch, and any
combination of them, is followed whose rates depend on nothing but the step.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from waferstream.core.errors import ConfigError
from waferstream.core.hyper_schedules.composed import TabulatedLR

steps_for_real: ContextVar[bool] = ContextVar("steps_for_real", default=False)
"""Whether the ``step`` of a scheduler is its own, also inside of a trace."""

_SCHEDULED = ("lr", "initial_lr")


class TorchSchedule:
    """A scheduler of torch, as a recorder uses it.

    Args:
        scheduler: One of ``torch.optim.lr_scheduler``, or a subclass.
        optimizer: What trains, by default the optimizer of the scheduler: one of ``cstorch.optim``
            with as many groups.
    """

    key = "lr"

    def __init__(self, scheduler: Any, optimizer: torch.optim.Optimizer | None = None) -> None:
        self._scheduler = scheduler
        self.optimizer = optimizer or scheduler.optimizer
        self.offset = 0
        self._known: _Table | None = None
        self._noted = self.last_epoch

    @property
    def last_epoch(self) -> int:
        """The number of steps that it has counted."""
        return _count(self._scheduler)

    @property
    def num_loads(self) -> int:
        """By how much the program has changed the count, in a step of its own or by loading."""
        return self.last_epoch - self._noted

    @property
    def _table(self) -> _Table:
        """The rates; made when they are needed, not where a trace must not read groups."""
        if self._known is None:
            self._known = _Table(self._scheduler)
        return self._known

    def sets(self, group: Mapping[str, Any]) -> bool:
        """Return whether a parameter group belongs to its optimizer."""
        return any(group is own for own in self.optimizer.param_groups)

    def start_at(self, done: int, resumed: int) -> None:  # noqa: ARG002
        """Note that training goes on after ``done`` steps with the present count."""
        if self.num_loads:
            self._known = None
        self._noted = self.last_epoch
        self.offset = self._noted - done

    def cover(self, num_steps: int) -> None:
        """Make the schedule known for at least ``num_steps`` steps of its own count."""
        self._table.cover(num_steps)

    def schedule_of(self, group: Mapping[str, Any]) -> TabulatedLR:
        """Return the learning rates of a parameter group."""
        groups = self.optimizer.param_groups
        index = next(index for index, own in enumerate(groups) if own is group)
        values = self._table.of_group(index)
        return TabulatedLR(initial_learning_rate=values[0], values=values)

    def note_done(self, steps: int) -> None:
        """Set count and learning rates to those after so many steps of training."""
        table, target = self._table, steps + self.offset
        if target < self.last_epoch:
            table.reset(self._scheduler)
        self._scheduler.optimizer._opt_called = True  # MemoryX has updated
        with stepping_for_real():
            while self.last_epoch < target:
                self._scheduler.step()
        self._noted = self.last_epoch
        given = self._scheduler.optimizer.param_groups
        for own, group in zip(self.optimizer.param_groups, given, strict=True):
            own["lr"] = float(group["lr"])


class _Table:
    """The learning rates of every group, at the counts of a copy of a scheduler."""

    def __init__(self, scheduler: Any) -> None:
        self._first_state = copy.deepcopy(scheduler.state_dict())
        self._optimizer = _Groups(scheduler.optimizer)
        self._copy = copy.deepcopy(scheduler, {id(scheduler.optimizer): self._optimizer})
        self._others = self._optimizer.others()
        self._first = self._optimizer.rates()
        self._rates = [self._first] * (_count(scheduler) + 1)  # earlier ones are not read

    def reset(self, scheduler: Any) -> None:
        """Set a scheduler, and the rates of its optimizer, to what was copied."""
        scheduler.load_state_dict(copy.deepcopy(self._first_state))
        for group, rate in zip(scheduler.optimizer.param_groups, self._first, strict=True):
            group["lr"] = rate

    def of_group(self, index: int) -> tuple[float, ...]:
        """Return the rates of a group at the counts 0, 1, ... as far as they are known."""
        return tuple(rates[index] for rates in self._rates)

    def cover(self, num_steps: int) -> None:
        """Make the rates of so many steps known, and of one more.

        Raises:
            ConfigError: The scheduler sets more than learning rates.
        """
        with stepping_for_real():
            while len(self._rates) <= num_steps:
                self._copy.step()
                self._check_others()
                self._rates.append(self._optimizer.rates())

    def _check_others(self) -> None:
        if self._optimizer.others() != self._others:
            raise ConfigError(
                "a scheduler must set learning rates alone",
                code="scheduler-of-other-key",
                where=type(self._copy).__name__,
                value=", ".join(sorted({*_changed(self._others, self._optimizer.others())})),
                rule="MemoryX follows schedules of lr",
                remedy="turn that off: cycle_momentum=False",
            )


class _Groups:
    """What a scheduler reads and sets of an optimizer: the values of its parameter groups."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.param_groups = [
            {key: copy.copy(value) for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        self._opt_called = True

    def step(self) -> None:
        """Do nothing; a scheduler looks at its mark."""

    def rates(self) -> Sequence[float]:
        """Return the learning rate of every group."""
        return [float(group["lr"]) for group in self.param_groups]

    def others(self) -> Sequence[Mapping[str, Any]]:
        """Return all that no schedule of learning rates sets."""
        return [
            {key: value for key, value in group.items() if key not in _SCHEDULED}
            for group in self.param_groups
        ]


@contextmanager
def stepping_for_real() -> Iterator[None]:
    """Let schedulers step as torch has it, without a word on the order of steps."""
    token = steps_for_real.set(True)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*optimizer.step", UserWarning)
            yield
    finally:
        steps_for_real.reset(token)


def _count(scheduler: Any) -> int:
    """Return the steps that a scheduler has counted; a chain's first one counts for it."""
    while not hasattr(scheduler, "last_epoch"):
        scheduler = scheduler._schedulers[0]
    return int(scheduler.last_epoch)


def _changed(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield the keys that differ in some group."""
    for old, new in zip(before, after, strict=True):
        yield from (key for key in {*old, *new} if old.get(key) != new.get(key))
