"""What a traced step asks for besides computing: which update follows it.

Inside a ``cstorch.trace`` function optimizers and schedulers do not act; they tell the recorder of
that trace. What it has heard becomes the OptimizerSpec that MemoryX applies after every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from wsc.core.errors import ApplianceCompilationError
from wsc.core.hyper_schedules import HyperSchedule
from wsc.core.optimizer import OptimizerSpec


class RecordedScheduler(Protocol):
    """What becomes of a scheduler: a hyper-parameter that follows a schedule."""

    @property
    def key(self) -> str:
        """The hyper-parameter."""

    @property
    def schedule(self) -> HyperSchedule:
        """Its value at each step."""

    def sets(self, group: Mapping[str, Any]) -> bool:
        """Whether it is that of this parameter group."""

    def note_done(self, steps: int) -> None:
        """So many steps have been done on the cluster."""


class RecordedOptimizer(Protocol):
    """What becomes of an optimizer."""

    def spec(
        self, names: Mapping[torch.Tensor, str], schedulers: Sequence[RecordedScheduler]
    ) -> OptimizerSpec:
        """The update as data; ``names`` as of ``Recorder.spec``."""


@dataclass
class Recorder:
    """The update that one traced step asks for.

    Every method refuses, with an ApplianceCompilationError, what MemoryX cannot do once per step
    in its fixed order: clip by value, clip by norm, update.
    """

    optimizer: RecordedOptimizer | None = None
    schedulers: list[RecordedScheduler] = field(default_factory=list)
    max_gradient_norm: float | None = None
    max_gradient_value: float | None = None
    loss_scale: float = 1.0

    def clip_value(self, max_value: float) -> None:
        """Gradients are clamped to [-max_value, max_value] before the update."""
        self._refuse_after_step("clipping")
        if self.max_gradient_value is not None:
            raise _refusal("gradients are clipped by value twice", "clipped-twice", "once per step")
        if self.max_gradient_norm is not None:
            raise _refusal(
                "gradients are clipped by norm and then by value",
                "clipped-by-norm-first",
                "by value first",
            )
        self.max_gradient_value = float(max_value)

    def clip_norm(self, max_norm: float) -> None:
        """Gradients are scaled to a global L2 norm of at most ``max_norm`` before the update."""
        self._refuse_after_step("clipping")
        if self.max_gradient_norm is not None:
            raise _refusal("gradients are clipped by norm twice", "clipped-twice", "once per step")
        self.max_gradient_norm = float(max_norm)

    def scale_loss(self, loss_scale: float) -> None:
        """The loss is multiplied by ``loss_scale``, so gradients are divided by it."""
        if self.loss_scale != 1.0:
            raise _refusal("the loss is scaled twice", "loss-scaled-twice", "once per step")
        self.loss_scale = float(loss_scale)

    def step_optimizer(self, optimizer: RecordedOptimizer) -> None:
        """The update is that of ``optimizer``."""
        if self.optimizer is not None:
            raise _refusal(
                "two optimizer steps in one trace",
                "optimizer-stepped-twice",
                "one optimizer, stepped once",
            )
        self.optimizer = optimizer

    def step_scheduler(self, scheduler: RecordedScheduler) -> None:
        """A hyper-parameter follows ``scheduler``."""
        if scheduler in self.schedulers:
            raise _refusal(
                "a scheduler is stepped twice in one trace",
                "scheduler-stepped-twice",
                "once per step",
            )
        self.schedulers.append(scheduler)

    def spec(self, names: Mapping[torch.Tensor, str]) -> OptimizerSpec | None:
        """What MemoryX has to do after the step; None if the trace steps no optimizer.

        ``names`` maps each parameter to its name in the model.
        """
        if self.optimizer is None:
            return None
        return replace(
            self.optimizer.spec(names, self.schedulers),
            max_gradient_norm=self.max_gradient_norm,
            max_gradient_value=self.max_gradient_value,
            loss_scale=self.loss_scale,
        )

    def _refuse_after_step(self, what: str) -> None:
        if self.optimizer is not None:
            raise _refusal(
                f"{what} after optimizer.step()",
                "clipped-after-step",
                "before it, after loss.backward()",
            )


def _refusal(what: str, code: str, rule: str) -> ApplianceCompilationError:
    return ApplianceCompilationError(what, code=code, where="the traced step", rule=rule)


active_recorder: ContextVar[Recorder | None] = ContextVar("active_recorder", default=None)
"""The recorder of the trace that runs now; None outside."""


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record what happens inside; for whoever traces a step."""
    recorder = Recorder()
    token = active_recorder.set(recorder)
    try:
        yield recorder
    finally:
        active_recorder.reset(token)
