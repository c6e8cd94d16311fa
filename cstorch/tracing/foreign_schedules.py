"""LambdaLR of torch in a traced step, as the schedules of transformers are.

Its functions of the step are evaluated in the process of the user, and MemoryX gets the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim.lr_scheduler import LambdaLR

from wsc.core.hyper_schedules.composed import TabulatedLR


class LambdaSchedule:
    """A LambdaLR over an optimizer of ``cstorch.optim``, as a recorder uses it."""

    key = "lr"

    def __init__(self, scheduler: LambdaLR) -> None:
        self._scheduler = scheduler
        self.offset = 0
        self._noted = scheduler.last_epoch
        self._num_steps = 1

    @property
    def last_epoch(self) -> int:
        """The number of steps that it has counted."""
        return self._scheduler.last_epoch

    @property
    def optimizer(self) -> object:
        """The optimizer whose groups it sets."""
        return self._scheduler.optimizer

    @property
    def num_loads(self) -> int:
        """By how much the program has changed the count, in a step of its own or by loading."""
        return self.last_epoch - self._noted

    def sets(self, group: Mapping[str, Any]) -> bool:
        """Return whether a parameter group belongs to its optimizer."""
        return any(group is own for own in self._groups)

    def start_at(self, done: int, resumed: int) -> None:  # noqa: ARG002
        """Note that training goes on after ``done`` steps with the present count."""
        self.offset, self._noted = self.last_epoch - done, self.last_epoch

    def cover(self, num_steps: int) -> None:
        """Make the schedule known for at least ``num_steps`` steps of its own count."""
        self._num_steps = max(self._num_steps, num_steps + 1)

    def schedule_of(self, group: Mapping[str, Any]) -> TabulatedLR:
        """Return the learning rates of a parameter group."""
        index = next(index for index, own in enumerate(self._groups) if own is group)
        values = tuple(self._rate(index, step) for step in range(self._num_steps))
        return TabulatedLR(initial_learning_rate=values[0], values=values)

    def note_done(self, steps: int) -> None:
        """Set count and learning rates to those after so many steps of training."""
        self._noted = self._scheduler.last_epoch = steps + self.offset
        self._scheduler._step_count = self._noted + 1
        rates = [self._rate(index, self._noted) for index in range(len(self._groups))]
        self._scheduler._last_lr = [*rates]
        for group, rate in zip(self._groups, rates, strict=True):
            group["lr"] = rate

    @property
    def _groups(self) -> Sequence[dict[str, Any]]:
        return self._scheduler.optimizer.param_groups

    def _rate(self, index: int, step: int) -> float:
        return float(self._scheduler.base_lrs[index] * self._scheduler.lr_lambdas[index](step))


_KNOWN: WeakKeyDictionary[LambdaLR, LambdaSchedule] = WeakKeyDictionary()


def schedule_of(scheduler: LambdaLR) -> LambdaSchedule:
    """Return the schedule that a recorder uses for a LambdaLR: the same in every trace."""
    return _KNOWN.setdefault(scheduler, LambdaSchedule(scheduler))
