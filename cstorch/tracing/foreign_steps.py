"""Refuse torch's own optimizers, and most of its schedulers, in a traced step.

The body runs once, on tensors without values. A step of torch's optimizer would find no gradient,
and a step of torch's scheduler would count once: both would pass in silence. LambdaLR is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import torch
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import register_optimizer_step_pre_hook

from cstorch.optim.optimizer import Optimizer
from cstorch.recording.recorder import active_recorder
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.hyper_schedules.composed import TabulatedLR

_SCHEDULERS = (
    lr_scheduler.LRScheduler,
    lr_scheduler.ChainedScheduler,
    lr_scheduler.ReduceLROnPlateau,
    lr_scheduler.SequentialLR,
)
"""Classes with a method ``step`` of their own, which all others inherit."""


class LambdaSchedule:
    """A LambdaLR over an optimizer of ``cstorch.optim``, as a recorder uses it.

    The schedules of transformers are such. Its functions of the step are evaluated in the process
    of the user, and MemoryX gets the values.
    """

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


@contextmanager
def refused_foreign_steps() -> Iterator[None]:
    """Raise ApplianceCompilationError where torch's optimizers and schedulers are stepped."""
    hook = register_optimizer_step_pre_hook(_refuse_optimizer)
    with ExitStack() as stack:
        stack.callback(hook.remove)
        for kind in _SCHEDULERS:
            stack.enter_context(mock.patch.object(kind, "step", _step_scheduler))
        yield


def _refuse_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if isinstance(optimizer, Optimizer):
        return
    raise _refusal("an optimizer", optimizer, "torch-optimizer-in-trace", "optim")


def _step_scheduler(scheduler: object, *_: Any, **__: Any) -> None:
    recorder = active_recorder.get()
    if isinstance(scheduler, lr_scheduler.LambdaLR) and recorder is not None:
        optimizer: object = scheduler.optimizer
        if isinstance(optimizer, Optimizer):
            recorder.step_scheduler(schedule_of(scheduler))
            return
    where = "optim.lr_scheduler"
    raise _refusal("a scheduler", scheduler, "torch-scheduler-in-trace", where)


def _refusal(what: str, foreign: object, code: str, module: str) -> ApplianceCompilationError:
    name = type(foreign).__name__
    return ApplianceCompilationError(
        f"{what} of torch is stepped inside a traced step",
        code=code,
        where="the traced step",
        value=f"{type(foreign).__module__}.{name}",
        rule="MemoryX updates the weights after every step, and evaluates schedules there",
        remedy=f"take one of cstorch.{module}, where most of torch's names exist; a scheduler may "
        "be stepped in the loop, too",
    )
