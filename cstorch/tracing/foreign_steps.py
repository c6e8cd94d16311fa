"""Refuse torch's own optimizers, and most of its schedulers, in a traced step.

The body runs once, on tensors without values. A step of torch's optimizer would find no gradient,
and a step of torch's scheduler would count once: both would pass in silence. LambdaLR is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from cstorch.optim.optimizer import Optimizer
from cstorch.recording.recorder import active_recorder
from cstorch.tracing.foreign_schedules import schedule_of
from wsc.core.errors import ApplianceCompilationError

_SCHEDULERS = (
    lr_scheduler.LRScheduler,
    lr_scheduler.ChainedScheduler,
    lr_scheduler.ReduceLROnPlateau,
    lr_scheduler.SequentialLR,
)
"""Classes with a method ``step`` of their own, which all others inherit."""


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
