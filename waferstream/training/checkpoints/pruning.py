"""Prune the weights of a trained model at once: ``waferstream checkpoint prune``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cstorch
from appliance.input.batches import GlobalBatches
from cstorch.sparse.configuration import build as build_sparsity
from cstorch.sparse.filters import FilterCallable, default_sparse_param_filter
from waferstream.config.params import InitConfig, Params
from waferstream.core.errors import ConfigError
from waferstream.training.checkpoints.restoring import load_weights
from waferstream.training.setup.model import make_model
from waferstream.training.setup.steps import make_loss_of
from waferstream.workload.data import build_source, check_section
from waferstream.workload.published_names import published_name

_LOADER = "trainer.fit.train_dataloader"


def pruned_model(params: Params, checkpoint: Path, share: float, num_batches: int) -> nn.Module:
    """Return the model of a checkpoint, pruned on the first batches of its training data.

    The weights are those that ``init.sparsity`` selects, or those that are sparse by default.

    Args:
        params: The configuration of its training.
        checkpoint: The trained weights.
        share: The share of zeros of each weight.
        num_batches: Calibration batches.

    Raises:
        ConfigError: The file names no training data, or a weight cannot be pruned.
        CheckpointError: The checkpoint is not of this model.
    """
    init = params.trainer.init
    model = make_model(init)
    load_weights(model, checkpoint)
    cstorch.sparse.prune_one_shot(
        model,
        _batches(params, num_batches),
        share,
        forward=make_loss_of(init, model),
        param_filter=_filter(init, model),
    )
    return model


def _batches(params: Params, count: int) -> Sequence[Any]:
    fit = params.trainer.fit
    if fit is None:
        raise ConfigError(
            "pruning needs training data, on which layers keep their outputs",
            code="missing-key",
            where=_LOADER,
        )
    section = fit.train_dataloader.dump()
    check_section(section, _LOADER)
    source = partial(build_source, section, _LOADER)
    batches = GlobalBatches(source, seed=params.trainer.init.seed)
    return [batches.structured(step)[0] for step in range(count)]


def _filter(init: InitConfig, model: nn.Module) -> FilterCallable:
    if not init.sparsity:
        return lambda name, p: default_sparse_param_filter(published_name(name), p)
    sparsity = build_sparsity(init.sparsity, published_name)
    model.apply(sparsity)
    selected = {name for name, _ in sparsity.assigned().values()}

    def select(name: str, _parameter: torch.Tensor) -> bool:
        return name in selected

    return select
