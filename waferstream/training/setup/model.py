"""Model, optimizer, schedulers, loss scale, and what the cluster watches."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from torch import nn

import cstorch
from cstorch.amp import GradScaler
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.scheduler import Scheduler
from cstorch.sparse.configuration import build as build_sparsity
from waferstream.config.params import InitConfig
from waferstream.config.sections.callbacks import ComputeNorm, Lora, NaNChecker, NotFiniteSteps
from waferstream.config.sections.section import MAX_STEP
from waferstream.core.hyper_schedules.base import scheduler_name
from waferstream.core.hyper_schedules.build import argument_names
from waferstream.core.hyper_schedules.composed import ScalePerParamLR
from waferstream.core.messages.watch import Watch
from waferstream.training.setup.lora import add_lora
from waferstream.training.setup.parameter_groups import parameter_groups
from waferstream.workload.models import build_model
from waferstream.workload.published_names import published_name

log = logging.getLogger("waferstream")

_SCHEDULERS = {
    "lr": cstorch.optim.lr_scheduler,
    "weight_decay": cstorch.optim.weight_decay_scheduler,
}
"""The module of the schedulers of a hyper-parameter."""


def make_model(init: InitConfig) -> nn.Module:
    """Build the model with its initial weights, adapted as the callback ``Lora`` says."""
    model = build_model(init.model.dump(), init.seed, "trainer.init.model")
    lora = init.callback(Lora)
    return model if lora is None else add_lora(model, lora.lora_params, init.seed)


def make_optimizer(init: InitConfig, model: nn.Module) -> tuple[Optimizer, list[Scheduler]]:
    """Build the optimizer, with the groups of ``parameter_groups``, and its schedulers.

    The weights that the section ``sparsity`` names become sparse.
    """
    assert init.optimizer is not None, "checked by the caller"
    _say_unused_rate(init)
    kind = getattr(cstorch.optim, init.optimizer.class_name)
    optimizer: Optimizer = kind(parameter_groups(init, model), **init.optimizer.arguments())
    if init.sparsity:
        sparsity = build_sparsity(init.sparsity, published_name)
        model.apply(sparsity)
        optimizer.apply(sparsity)
    return optimizer, list(_schedulers(init, optimizer))


def _say_unused_rate(init: InitConfig) -> None:
    """Warn of a learning rate that a scheduler of all parameters replaces at every step."""
    assert init.optimizer is not None, "checked by the caller"
    unlimited = (s for s in init.schedulers if s.key == "lr" and not s.param_group_tags)
    scheduler = next(unlimited, None)
    is_given = init.optimizer.lr != type(init.optimizer).model_fields["lr"].default
    if is_given and scheduler is not None:
        log.warning(
            "lr: %s of the optimizer has no effect: %s sets the learning rate of every step",
            init.optimizer.lr,
            scheduler.name,
        )


def _schedulers(init: InitConfig, optimizer: Optimizer) -> Iterator[Scheduler]:
    has_factors = any("adjust_learning_rate" in group for group in optimizer.param_groups)
    for config in init.schedulers:
        schedule = config.schedule
        if has_factors and config.key == "lr":
            schedule = ScalePerParamLR(scheduler=schedule)
        kind = getattr(_SCHEDULERS[config.key], scheduler_name(type(schedule).__name__, config.key))
        names = argument_names(type(schedule), config.key)
        arguments = {own: getattr(schedule, name) for name, own in names.items()}
        yield kind(optimizer=optimizer, param_group_tags=config.param_group_tags, **arguments)


def make_scaler(init: InitConfig) -> GradScaler:
    """Build the loss scale; a dynamic one only for half types that need it."""
    section = init.precision
    policy = init.callback(NotFiniteSteps) or NotFiniteSteps()
    skips = policy.action != "stop"
    if section.loss_scaling_factor == "dynamic" and not section.scales_dynamically:
        log.info("The type %s needs no loss scale: none is used", section.stream_dtype)
        return GradScaler(skips_not_finite=skips)
    return GradScaler(
        section.loss_scaling_factor,
        init_scale=section.initial_loss_scale,
        steps_per_increase=section.steps_per_increase,
        min_loss_scale=section.min_loss_scale,
        max_loss_scale=section.max_loss_scale,
        skips_not_finite=skips,
    )


def make_watch(init: InitConfig, start: int) -> Watch:
    """Return the values to watch in a training that continues after step ``start``."""
    checker, device = init.callback(NaNChecker), init.backend.backend_type
    if device != "CSX" and (checker or init.callback(ComputeNorm)):
        log.warning("ComputeNorm and NaNChecker have no effect on %s", device)
    finite_to = 0 if checker is None else start + (checker.num_steps or MAX_STEP)
    return Watch(norms=init.callback(ComputeNorm) is not None, finite_to=finite_to)
