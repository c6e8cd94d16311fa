"""The traced steps of a Trainer: training and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from cstorch.amp import GradScaler, optimizer_step
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.scheduler import Scheduler
from cstorch.optim.torch_schedule import TorchSchedule
from cstorch.recording.recorder import active_recorder
from cstorch.trainer.batch import loss_of
from cstorch.trainer.config import CSConfig

_HALF_TYPES = ("float16", "cbfloat16")
"""Types whose range needs a loss scale."""


@dataclass(frozen=True)
class Steps:
    """What a step of a Trainer does with a batch.

    Attributes:
        model: The compiled model.
        loss_fn: Its loss; None where the model returns it.
        optimizer: One of ``cstorch.optim``.
        schedules: What sets its learning rates by the step.
        config: Clipping and precision.
        scaler: The loss scale, where the precision needs one.
    """

    model: nn.Module
    loss_fn: Any
    optimizer: Optimizer
    schedules: Sequence[Scheduler | TorchSchedule]
    config: CSConfig
    scaler: GradScaler | None

    @staticmethod
    def scaler_of(config: CSConfig) -> GradScaler | None:
        """Return the loss scale that a precision needs, if it needs one."""
        return GradScaler("dynamic") if config.precision in _HALF_TYPES else None

    def train(self, batch: Any) -> torch.Tensor:
        """Update the weights; return the loss."""
        loss = loss_of(self.model, self.loss_fn, batch)
        norm, value = self.config.max_gradient_norm, self.config.max_gradient_value
        if self.scaler is not None:
            optimizer_step(loss, self.optimizer, self.scaler, norm, value)
        else:
            loss.backward()
            self._clip(norm, value)
            self.optimizer.step()
            self.optimizer.zero_grad()
        if (recorder := active_recorder.get()) is not None:
            for schedule in self.schedules:
                recorder.step_scheduler(schedule)
        return loss

    def _clip(self, norm: float | None, value: float | None) -> None:
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        if norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, norm)
        if value is not None:
            torch.nn.utils.clip_grad_value_(parameters, value)

    def evaluate(self, batch: Any) -> torch.Tensor:
        """Return the loss in evaluation mode."""
        was_training = self.model.training
        self.model.eval()
        loss = loss_of(self.model, self.loss_fn, batch)
        self.model.train(was_training)
        return loss
