"""Build model, optimizer, schedulers, traced steps and data loaders from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

import cstorch
from cstorch.optim.optimizer import Optimizer
from cstorch.optim.scheduler import Scheduler
from modelzoo.data.registry import build_source, data_processor
from modelzoo.data.source import Batch
from modelzoo.models.registry import build_model, model_config
from waferstream.config.optimizer import DECAYED, NOT_DECAYED
from waferstream.config.params import InitConfig, Scope
from waferstream.config.sections import DataLoaderConfig
from wsc.core.errors import DataError
from wsc.core.hyper_schedules.build import argument_names

FAMILIES = {
    "lr": cstorch.optim.lr_scheduler,
    "weight_decay": cstorch.optim.weight_decay_scheduler,
}
"""The module of the schedulers of a hyper-parameter."""

Step = Callable[[Batch], Any]


def make_model(init: InitConfig) -> nn.Module:
    """Build the model with its initial weights."""
    return build_model(init.model.dump(), init.seed, "trainer.init.model")


def make_optimizer(init: InitConfig, model: nn.Module) -> tuple[Optimizer, list[Scheduler]]:
    """Build the optimizer, with weight decay on matrices only, and its schedulers.

    Biases and norm weights (tensors of one dimension) are not decayed, as in the vendor's zoo.
    """
    assert init.optimizer is not None, "checked by the caller"
    arguments = init.optimizer.arguments()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    not_decayed = {"weight_decay": 0.0} if "weight_decay" in arguments else {}
    groups = [
        {"params": parameters, "tags": tag, **own}
        for parameters, tag, own in ((matrices, DECAYED, {}), (vectors, NOT_DECAYED, not_decayed))
        if parameters
    ]
    kind = getattr(cstorch.optim, init.optimizer.class_name)
    optimizer: Optimizer = kind(groups, **arguments)
    return optimizer, list(_schedulers(init, optimizer))


def _schedulers(init: InitConfig, optimizer: Optimizer) -> Iterator[Scheduler]:
    for config in init.schedulers:
        kind = getattr(FAMILIES[config.key], config.name)
        names = argument_names(type(config.schedule), config.key)
        arguments = {own: getattr(config.schedule, name) for name, own in names.items()}
        yield kind(optimizer=optimizer, param_group_tags=config.param_group_tags, **arguments)


def training_step(
    init: InitConfig, model: nn.Module, optimizer: Optimizer, schedulers: list[Scheduler]
) -> Step:
    """Return the traced training step: forward, backward, clipping, update, schedule."""
    scaler = cstorch.amp.GradScaler(init.precision.loss_scaling_factor)

    @cstorch.trace
    def train(batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        cstorch.amp.optimizer_step(
            loss,
            optimizer,
            scaler,
            init.precision.max_gradient_norm,
            init.precision.max_gradient_value,
        )
        for scheduler in schedulers:
            scheduler.step()
        return loss

    return train


def evaluation_step(model: nn.Module) -> Step:
    """Return the traced evaluation step: forward only."""

    @cstorch.trace
    def evaluate(batch: Batch) -> torch.Tensor:
        loss: torch.Tensor = model(**batch)
        return loss

    return evaluate


def make_loader(
    init: InitConfig, config: DataLoaderConfig, scope: Scope, where: str
) -> cstorch.utils.data.DataLoader:
    """Return a loader that each input worker builds for itself.

    ConfigError or DataError, here and now, if its batches cannot be shared by the systems, or if
    the model cannot read the first one.
    """
    section: Mapping[str, Any] = config.dump()
    data_processor(section, where)
    check_share(init, config.batch_size, scope)
    loader = cstorch.utils.data.DataLoader(build_source, section, where)
    check_vocabulary(init, loader, where)
    return loader


def check_share(init: InitConfig, batch_size: int, scope: Scope) -> None:
    """Refuse a global batch that leaves a system without a micro-batch."""
    init.micro_batch_policy(scope).check(batch_size, init.backend.cluster_config.num_csx)


def check_vocabulary(init: InitConfig, loader: cstorch.utils.data.DataLoader, where: str) -> None:
    """Refuse data whose first batch has token ids outside the model's vocabulary."""
    batch = loader.local.batch(0)
    for feature in model_config(init.model.dump(), "trainer.init.model").features():
        if feature.name not in batch:
            raise DataError(
                "the data must have every input of the model",
                code="model-input-missing",
                where=where,
                value=f"{', '.join(batch)}; no {feature.name}",
                remedy="use the data processor that goes with this model",
            )
        largest = batch[feature.name].max().item()
        if feature.below is not None and largest >= feature.below:
            raise DataError(
                "token ids must be below the size of the model's vocabulary",
                code="token-out-of-vocabulary",
                where=where,
                value=f"{feature.name} {largest}",
                rule=f"below {feature.below}",
                remedy="use data of the model's vocabulary, or raise vocab_size",
            )
