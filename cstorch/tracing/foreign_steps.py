"""Refuse torch's own optimizers in a traced step, and record its schedulers.

The body runs once, on tensors without values. A step of torch's optimizer would find no gradient,
and a step of torch's scheduler would count once: both would pass in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import torch
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from cstorch.optim.optimizer import Optimizer
from cstorch.optim.torch_schedule import TorchSchedule, steps_for_real
from cstorch.recording.recorder import active_recorder
from waferstream.core.errors import ApplianceCompilationError

_SCHEDULERS: list[Any] = [
    kind for kind in vars(lr_scheduler).values() if isinstance(kind, type) and "step" in vars(kind)
]
"""Classes with a method ``step`` of their own, which all others inherit."""

_KNOWN: WeakKeyDictionary[Any, TorchSchedule] = WeakKeyDictionary()


def schedule_of(scheduler: Any) -> TorchSchedule:
    """Return the schedule that a recorder uses for a scheduler: the same in every trace."""
    return _KNOWN.setdefault(scheduler, TorchSchedule(scheduler))


@contextmanager
def refused_foreign_steps() -> Iterator[None]:
    """Raise ApplianceCompilationError where torch's optimizers and schedulers are stepped."""
    hook = register_optimizer_step_pre_hook(_refuse_optimizer)
    with ExitStack() as stack:
        stack.callback(hook.remove)
        for kind in _SCHEDULERS:
            stack.enter_context(mock.patch.object(kind, "step", _recorded(kind.step)))
        yield


def _refuse_optimizer(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if isinstance(optimizer, Optimizer):
        return
    raise _refusal("an optimizer", optimizer, "torch-optimizer-in-trace", "optim")


def _recorded(step: Callable[..., None]) -> Callable[..., None]:
    """Return what takes the place of the step of a class of schedulers."""

    def record(scheduler: Any, *args: Any, **named: Any) -> None:
        if steps_for_real.get():
            step(scheduler, *args, **named)
            return
        recorder = active_recorder.get()
        follows_step = not isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
        is_own = isinstance(scheduler.optimizer, Optimizer)
        if recorder is None or not (follows_step and is_own):
            raise _refusal("a scheduler", scheduler, "torch-scheduler-in-trace", "lr_scheduler")
        recorder.step_scheduler(schedule_of(scheduler))

    return record


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
