"""Who watches the first steps of a program that a command checks (``waferstream check``).

The program runs as it is, several times: on its cluster, and then on the CPU, where its steps are
plain PyTorch on the whole batch. After the steps to watch it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Around = Callable[[int], AbstractContextManager[None]]
"""Returns the context in which a step, counted from 1, computes."""

Compute = Callable[[Any, Any], Any]
"""Computes a step on the CPU without its update, given positional and named arguments; returns
what has its ``gradients``."""


COUNTER = "num_batches_tracked"
"""The buffer in which a batch norm counts: batches in a plain loop, micro-batches in a run."""


@dataclass(frozen=True)
class StepValues:
    """The loss of a step, and weights and buffers after it, by name."""

    loss: float
    state: Mapping[str, torch.Tensor]


def copy_of(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a copy of a model's state, without the counters of its batch norms."""
    return {
        name: tensor.detach().cpu().clone()
        for name, tensor in state.items()
        if not name.endswith(COUNTER)
    }


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

    before_step: Callable[[Compute, Any, Any], None] = lambda *_: None
    """Called before a step on the CPU with what computes it, its arguments and its ``Session``."""

    after_step: Callable[[Any], None] = lambda _step: None
    """Called with the traced step after each step of training."""

    found: list[StepValues] = field(default_factory=list)
    is_by_trainer: bool = False
    """Whether a ``cstorch.Trainer`` checks its own steps."""

    report: object = None
    """The ``referee.report.Report`` of that trainer; None before."""

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
