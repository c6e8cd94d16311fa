"""Build model, optimizer, schedulers, traced steps and data loaders from the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

import cstorch
from cstorch.amp import GradScaler
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.scheduler import Scheduler
from cstorch.sparse.configuration import build as build_sparsity
from cstorch.trace import TracedStep
from cstorch.tracing.forward import Forward
from modelzoo.data.registry import build_source, check_section
from modelzoo.models.lora import add_lora
from modelzoo.models.model_config import ModelConfig
from modelzoo.models.registry import build_model, group_of_samples, known_config
from modelzoo.published_names import published_name
from modelzoo.user_classes import compute_loss, make_loss
from waferstream.config.params import InitConfig, Scope
from waferstream.config.sections.callbacks import ComputeNorm, Lora, NaNChecker, NotFiniteSteps
from waferstream.config.sections.init import DataLoaderConfig
from waferstream.config.sections.section import MAX_STEP
from waferstream.training.callback import NONE, Callbacks
from waferstream.training.setup.parameter_groups import parameter_groups
from wsc.core.errors import DataError
from wsc.core.hyper_schedules.base import scheduler_name
from wsc.core.hyper_schedules.build import argument_names
from wsc.core.hyper_schedules.composed import ScalePerParamLR
from wsc.core.messages.watch import Watch
from wsc.host.sources import sources_digest

log = logging.getLogger("waferstream")

FAMILIES = {
    "lr": cstorch.optim.lr_scheduler,
    "weight_decay": cstorch.optim.weight_decay_scheduler,
}
"""The module of the schedulers of a hyper-parameter."""

Step = Callable[[Any], Any]

_MODEL = "trainer.init.model"
_SOURCES = ("cstorch", "memoryx", "modelzoo", "simulator", "timing", "waferstream", "wsc")
"""Packages whose code decides the program of a step."""


def make_model(init: InitConfig) -> nn.Module:
    """Build the model with its initial weights, adapted as the callback ``Lora`` says."""
    model = build_model(init.model.dump(), init.seed, _MODEL)
    lora = init.callback(Lora)
    return model if lora is None else add_lora(model, lora.lora_params, init.seed)


def make_optimizer(init: InitConfig, model: nn.Module) -> tuple[Optimizer, list[Scheduler]]:
    """Build the optimizer, with the groups of ``parameter_groups``, and its schedulers.

    The weights that the section ``sparsity`` names become sparse.
    """
    assert init.optimizer is not None, "checked by the caller"
    kind = getattr(cstorch.optim, init.optimizer.class_name)
    optimizer: Optimizer = kind(parameter_groups(init, model), **init.optimizer.arguments())
    if init.sparsity:
        sparsity = build_sparsity(init.sparsity, published_name)
        model.apply(sparsity)
        optimizer.apply(sparsity)
    return optimizer, list(_schedulers(init, optimizer))


def _schedulers(init: InitConfig, optimizer: Optimizer) -> Iterator[Scheduler]:
    has_factors = any("adjust_learning_rate" in group for group in optimizer.param_groups)
    for config in init.schedulers:
        schedule = config.schedule
        if has_factors and config.key == "lr":
            schedule = ScalePerParamLR(scheduler=schedule)
        kind = getattr(FAMILIES[config.key], scheduler_name(type(schedule).__name__, config.key))
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
    """Return what the cluster watches in a training that continues after step ``start``."""
    checker, device = init.callback(NaNChecker), init.backend.backend_type
    if device != "CSX" and (checker or init.callback(ComputeNorm)):
        log.warning("ComputeNorm and NaNChecker have no effect on %s", device)
    finite_to = 0 if checker is None else start + (checker.num_steps or MAX_STEP)
    return Watch(norms=init.callback(ComputeNorm) is not None, finite_to=finite_to)


def training_step(
    init: InitConfig,
    model: nn.Module,
    optimizer: Optimizer,
    schedulers: list[Scheduler],
    scaler: GradScaler,
    callbacks: Callbacks = NONE,
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
        scaler.unscale_(optimizer)
        call("on_before_optimizer_step", optimizer)
        _clip(init, optimizer)
        scaler.step(optimizer)
        scaler.update()
        call("on_after_optimizer_step", optimizer)
        call("on_before_optimizer_zero_grad", optimizer)
        optimizer.zero_grad()
        call("on_after_optimizer_zero_grad", optimizer)
        for scheduler in schedulers:
            call("on_before_scheduler_step", optimizer, scheduler)
            scheduler.step()
            call("on_after_scheduler_step", optimizer, scheduler)
        call("on_train_step_end", outputs, batch)
        return loss

    return TracedStep(train, None if callbacks.hear_traces else forward)


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
    """Return the function from a batch to its loss; its identity is that of a registered model.

    The code of a class of the user's may read anything, so such a model has none.
    """
    identity = None
    if known_config(init.model.dump(), _MODEL) is not None:
        sections = init.model_dump_json(include={"model", "precision"})
        identity = f"{sources_digest(*_SOURCES)} {sections}"
    return Forward(make_loss_of(init, model), identity)


def make_loss_of(init: InitConfig, model: nn.Module) -> Callable[[Any], torch.Tensor]:
    """Return the function from a batch to its loss: the model's own, or the loss of its section."""
    return partial(compute_loss, model, make_loss(init.model.dump(), _MODEL))


def make_loader(
    init: InitConfig, config: DataLoaderConfig, scope: Scope, where: str
) -> cstorch.utils.data.DataLoader:
    """Return a loader that each input worker builds for itself.

    ConfigError or DataError, here and now, if its batches cannot be shared by the systems, or if
    the model cannot read the first one.
    """
    section: Mapping[str, Any] = config.dump()
    check_section(section, where)
    check_share(init, config.batch_size, scope)
    with torch.random.fork_rng():
        torch.manual_seed(init.seed)  # a loader of the user's may draw random numbers
        loader = cstorch.utils.data.DataLoader(build_source, section, where)
    check_batch_size(config, loader, where)
    model = known_config(init.model.dump(), _MODEL)
    if model is not None:
        check_vocabulary(model, loader, where)
    return loader


def check_batch_size(
    config: DataLoaderConfig, loader: cstorch.utils.data.DataLoader, where: str
) -> None:
    """Refuse a loader whose first batch has another size than its section states."""
    _, leaves = loader.first
    if leaves and len(leaves[0]) != config.batch_size:
        raise DataError(
            "the batches of a loader must have batch_size samples",
            code="batch-size-mismatch",
            where=where,
            value=f"a batch of {len(leaves[0])}",
            rule=f"batch_size is {config.batch_size}",
            remedy="give batch_size on to the loader",
        )


def check_share(init: InitConfig, batch_size: int, scope: Scope) -> None:
    """Refuse a global batch that leaves a system without a micro-batch, or cuts a group."""
    group, num_csx = (
        group_of_samples(init.model.dump(), _MODEL),
        init.backend.cluster_config.num_csx,
    )
    init.micro_batch_policy(scope).check(batch_size, num_csx, group)


def check_vocabulary(model: ModelConfig, loader: cstorch.utils.data.DataLoader, where: str) -> None:
    """Refuse data whose first batch has token ids outside the model's vocabulary."""
    batch, _ = loader.first
    for feature in model.features():
        if not isinstance(batch, Mapping) or feature.name not in batch:
            found = ", ".join(batch) if isinstance(batch, Mapping) else type(batch).__name__
            raise DataError(
                "the data must have every input of the model",
                code="model-input-missing",
                where=where,
                value=f"{found}; no {feature.name}",
                remedy="use the data processor that goes with this model",
            )
        if feature.below is None:
            continue
        largest = batch[feature.name].max().item()
        if largest >= feature.below:
            raise DataError(
                "token ids must be below the size of the model's vocabulary",
                code="token-out-of-vocabulary",
                where=where,
                value=f"{feature.name} {largest}",
                rule=f"below {feature.below}",
                remedy="use data of the model's vocabulary, or raise vocab_size",
            )
