"""The traced steps of training and evaluation, and the function from a batch to its loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from cstorch.amp import GradScaler
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.scheduler import Scheduler
from cstorch.trace import TracedStep
from cstorch.tracing.forward import Forward
from waferstream.config.params import InitConfig
from waferstream.host.sources import OWN_PACKAGES, sources_digest
from waferstream.training.callback import NO_CALLBACKS, Callbacks
from waferstream.workload.models import is_of_zoo
from waferstream.workload.user_classes import compute_loss, make_loss

Step = Callable[[Any], Any]
"""A traced step: from a batch to its loss."""

_MODEL = "trainer.init.model"


def training_step(
    init: InitConfig,
    model: nn.Module,
    optimizer: Optimizer,
    schedulers: list[Scheduler],
    scaler: GradScaler,
    callbacks: Callbacks = NO_CALLBACKS,
    trainer: object = None,
) -> Step:
    """Return the traced training step: forward, backward, clipping, update, schedule.

    Hooks of ``callbacks`` receive the ``trainer``.
    """
    forward = make_forward(init, model)

    def call(hook: str, *arguments: Any) -> None:
        callbacks.call(hook, trainer, model, *arguments)

    def train(batch: Any) -> torch.Tensor:
        call("on_train_step_start", batch)
        call("on_before_forward", batch, [], {})
        loss = forward(batch)
        outputs = {"loss": loss}
        call("on_after_forward", outputs, batch)
        call("on_before_backward", outputs)
        scaler.scale(loss).backward()
        call("on_after_backward", outputs)
        _update(init, optimizer, scaler, call)
        for scheduler in schedulers:
            call("on_before_scheduler_step", optimizer, scheduler)
            scheduler.step()
            call("on_after_scheduler_step", optimizer, scheduler)
        call("on_train_step_end", outputs, batch)
        return loss

    return TracedStep(train, None if callbacks.hear_traces else forward)


def _update(
    init: InitConfig, optimizer: Optimizer, scaler: GradScaler, call: Callable[..., None]
) -> None:
    """Clip the gradients, update the weights, and clear the gradients.

    Args:
        init: The configuration of the run.
        optimizer: The optimizer, with gradients.
        scaler: The loss scale, by which they are divided.
        call: Calls a hook by name, with its arguments after the trainer and the model.
    """
    scaler.unscale_(optimizer)
    call("on_before_optimizer_step", optimizer)
    _clip(init, optimizer)
    scaler.step(optimizer)
    scaler.update()
    call("on_after_optimizer_step", optimizer)
    call("on_before_optimizer_zero_grad", optimizer)
    optimizer.zero_grad()
    call("on_after_optimizer_zero_grad", optimizer)


def _clip(init: InitConfig, optimizer: Optimizer) -> None:
    """Clip the gradients as the section ``precision`` says."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if (limit := init.precision.max_gradient_value) is not None:
        torch.nn.utils.clip_grad_value_(parameters, limit)
    if (limit := init.precision.max_gradient_norm) is not None:
        torch.nn.utils.clip_grad_norm_(parameters, limit)


def evaluation_step(init: InitConfig, model: nn.Module) -> Step:
    """Return the traced evaluation step: forward only, in evaluation mode."""
    forward = make_forward(init, model)

    def evaluate(batch: Any) -> torch.Tensor:
        model.eval()
        loss = forward(batch)
        model.train()
        return loss

    return TracedStep(evaluate, forward)


def make_forward(init: InitConfig, model: nn.Module) -> Forward:
    """Return the function from a batch to its loss; its identity is that of a model of the zoo.

    The code of others, such as a class of the user's, may read anything: they have none.
    """
    identity = None
    if is_of_zoo(init.model.dump(), _MODEL):
        sections = init.model_dump_json(include={"model", "precision"})
        identity = f"{sources_digest(*OWN_PACKAGES)} {sections}"
    return Forward(make_loss_of(init, model), identity)


def make_loss_of(init: InitConfig, model: nn.Module) -> Callable[[Any], torch.Tensor]:
    """Return the function from a batch to its loss: the model's own, or the loss of its section."""
    return partial(compute_loss, model, make_loss(init.model.dump(), _MODEL))
