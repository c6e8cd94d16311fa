"""Who watches the first steps of a program that a command checks (``waferstream check``).

The program runs as it is, several times: on its cluster, and then on the CPU, where its steps are
plain PyTorch on the whole batch. After the steps to watch it is left.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cstorch.referee.values import StepValues, copy_of

if TYPE_CHECKING:
    from torch import nn

    from cstorch.referee.report import Report
    from cstorch.session.session import Session

Around = Callable[[int], AbstractContextManager[None]]
"""Returns the context in which a step, counted from 1, computes."""

Compute = Callable[[Any, Any], Any]
"""Computes a step on the CPU without its update, given positional and named arguments; returns
what has its ``gradients``."""


class StepsDone(BaseException):
    """The steps to watch are done: no error, and nothing that a program would catch."""


@dataclass
class Witness:
    """Watches the steps of one run of a program."""

    steps: int
    device: str | None = None
    """The device on which the program runs; None for its own."""

    around: Around = lambda _step: nullcontext()
    """What a step on the CPU computes within."""

    before_step: Callable[[Compute, Any, Session], None] = lambda *_: None
    """Called before a step on the CPU with what computes it, its arguments and its session."""

    after_step: Callable[[Any], None] = lambda _step: None
    """Called with the traced step after each step of training."""

    found: list[StepValues] = field(default_factory=list)
    is_by_trainer: bool = False
    """Whether a ``cstorch.Trainer`` checks its own steps."""

    report: Report | None = None
    """The report of that trainer."""

    def note(self, model: nn.Module, loss: float | None, step: Any) -> None:
        """Take the values of the step of training that has just been done.

        Raises:
            StepsDone: It was the last one.
        """
        if self.is_by_trainer:
            return
        known = float("nan") if loss is None else loss
        self.found.append(StepValues(known, copy_of(model.state_dict())))
        self.after_step(step)
        if len(self.found) == self.steps:
            raise StepsDone
