"""Data loaders, checked against the model and the cluster that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

import cstorch
from waferstream.config.params import InitConfig, Scope
from waferstream.config.sections.init import DataLoaderConfig
from waferstream.core.errors import DataError
from waferstream.workload.data import build_source, check_section
from waferstream.workload.data_files import out_of_vocabulary
from waferstream.workload.model_config import ModelConfig
from waferstream.workload.models import group_of_samples, known_config

_MODEL = "trainer.init.model"


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
            remedy = "use data of the model's vocabulary, or raise vocab_size"
            value, rule = f"{feature.name} {largest}", f"below {feature.below}"
            raise out_of_vocabulary(where, value, rule, remedy)
