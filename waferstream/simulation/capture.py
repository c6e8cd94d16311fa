"""The training step of a run as a program, captured without weights, data or cluster.

The step is compiled at two micro-batch sizes (``step_at_sizes``), from which all larger sizes
follow; where a micro-batch is a single group of samples, or a single sample, also at that size. The
captured step is cached as JSON beside the compile artifacts of runs, under a digest of everything
that decides it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from torch.utils import _pytree as pytree

from appliance.input.batches import GlobalBatches
from cstorch.backend import Backend
from memoryx.optim.cost import update_cost, waits_for_all
from memoryx.optim.rule import rule_named
from waferstream.compiler.derivation.scale import captured_sizes
from waferstream.compiler.derivation.stacks import Shape
from waferstream.config.params import InitConfig, Params, TrainerConfig
from waferstream.config.sections.init import DataLoaderConfig
from waferstream.core.errors import ConfigError, DataError
from waferstream.host.sources import OWN_PACKAGES, sources_digest
from waferstream.simulation.captured import (
    CapturedStep,
    deciding_sections,
    load,
    load_captured,
    store,
    store_captured,
)
from waferstream.simulation.step_at_sizes import (
    AtSize,
    ShallowStep,
    capture_at,
    capture_shallow,
    model_of,
    shapes_of,
)
from waferstream.version import VERSION
from waferstream.workload.data import build_source, check_section, data_processor
from waferstream.workload.models import group_of_samples, is_of_zoo

log = logging.getLogger("waferstream")


def capture_step(params: Params, backend: Backend) -> CapturedStep:
    """Capture the training step of a run on ``backend``, or load it from the cache.

    Raises:
        ConfigError: The configuration does not train.
        WaferStreamError: The step cannot be compiled.
    """
    init, fit = params.trainer.init, params.trainer.fit
    if fit is None or init.optimizer is None:
        missing = "trainer.fit" if fit is None else "trainer.init.optimizer"
        raise ConfigError(
            f"the params file must have a section {missing}",
            code="simulation-without-training",
            where=missing,
            value="missing",
            rule="a simulation predicts training steps",
            remedy="`waferstream config pull gpt2_small` copies a file that has optimizer and fit",
        )
    batch = example_batch(init, fit.train_dataloader)
    path = _cache_file(params.trainer, backend, batch)
    cached = load_captured(path)
    if cached is not None:
        log.info("Captured step loaded from %s", path)
        return cached
    sizes = _sizes(init)
    log.info(
        "Capturing the step at %d and at %d samples. A large model takes some seconds, once.",
        *sizes,
    )
    small, large = capture_at(init, backend, batch, sizes)
    captured = captured_step(small, large, type(backend.model).__name__)
    store_captured(captured, path)
    return captured


def with_one_group(step: CapturedStep, params: Params, backend: Backend) -> CapturedStep:
    """Return a captured step with that of a single group of samples; the cache gets it, too."""
    if step.one_group is not None:
        return step
    init, fit = params.trainer.init, params.trainer.fit
    assert fit is not None, "checked when the step was captured"
    batch, size = example_batch(init, fit.train_dataloader), group_of_samples(init.model.dump())
    log.info("Capturing the step at %d as well, since that is the micro-batch", size)
    (one,) = capture_at(init, backend, batch, (size,))
    whole = replace(step, one_group=one.program)
    store_captured(whole, _cache_file(params.trainer, backend, batch))
    return whole


def cache_file_of(params: Params, backend: Backend) -> Path | None:
    """Return the file of a captured step, None where code that is not the zoo's decides it."""
    fit = params.trainer.fit
    assert fit is not None, "checked when the step was captured"
    if not _is_ours(params.trainer):
        return None
    return _cache_file(
        params.trainer, backend, example_batch(params.trainer.init, fit.train_dataloader)
    )


def _cache_file(
    trainer: TrainerConfig, backend: Backend, batch: Any, kind: str = "step"
) -> Path | None:
    """Return the file of a captured step, None if code of the user's decides what is captured."""
    if not _is_ours(trainer):  # other code may change, and is captured in seconds
        return None
    assert backend.session.settings.cache is not None, "a run has a compile_dir"
    return backend.session.settings.cache.root / f"{kind}_{_digest(trainer.init, batch)}.json"


def example_batch(init: InitConfig, config: DataLoaderConfig) -> Any:
    """Return a few samples of the run's data, or zeros of the model's input shapes without data."""
    samples = _sizes(init)[-1]
    section = {**config.dump(), "batch_size": samples}
    where = "trainer.fit.train_dataloader"
    check_section(section, where)
    model = model_of(init)
    try:
        batch, _ = GlobalBatches(partial(build_source, section, where)).first()
        return pytree.tree_map_only(torch.Tensor, partial(with_rows, samples), batch)
    except (DataError, OSError) as error:
        if model is None:
            raise
        log.info("No data can be read, so shapes are those of the model's inputs: %s", error)
    length = section.get("max_sequence_length")
    features = model.for_data(section).features(length)
    return {f.name: torch.zeros(samples, *f.shape, dtype=f.dtype) for f in features}


def with_rows(rows: int, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with this number of rows, repeating or leaving out its own."""
    return tensor[torch.arange(rows) % len(tensor)]


def _is_ours(trainer: TrainerConfig) -> bool:
    """Tell whether model, data and optimizer are of this project, whose code digests know."""
    assert trainer.fit is not None
    assert trainer.init.optimizer is not None, "checked before the capture"
    model, data = trainer.init.model.dump(), trainer.fit.train_dataloader
    if data.class_path is not None or not is_of_zoo(model, "trainer.init.model"):
        return False
    processor = type(data_processor(data.dump(), "trainer.fit.train_dataloader"))
    rule = type(rule_named(trainer.init.optimizer.class_name))
    return all(kind.__module__.partition(".")[0] in OWN_PACKAGES for kind in (processor, rule))


def captured_step(small: AtSize, large: AtSize, model_class: str) -> CapturedStep:
    """Return the step of a model of which programs at two sizes were compiled."""
    optimizer = small.optimizer
    return CapturedStep(
        small=small.program,
        large=large.program,
        update=update_cost(optimizer, small.program.parameter),
        waits_for_all=waits_for_all(optimizer),
        tokens_per_sample=small.program.tokens_per_sample,
        sparse=() if optimizer is None else optimizer.sparsity,
        model_class=model_class,
    )


@dataclass(frozen=True)
class AnyDepth:
    """The step of a model with any number of layers: at two micro-batch sizes, and at the least."""

    pair: ShallowStep
    one: ShallowStep
    model_class: str

    def captured(self, shapes: Mapping[str, Shape]) -> CapturedStep | None:
        """Return the step of a model with these parameters, None if it does not follow."""
        pair, one = self.pair.deepened(shapes), self.one.deepened(shapes)
        if pair is None or one is None:
            return None
        small, large = pair
        step = captured_step(small, large, self.model_class)
        return replace(step, one_group=one[0].program)


_DEEP = TypeAdapter(AnyDepth)


def capture_any_depth(params: Params, backend: Backend) -> AnyDepth | None:
    """Capture the step of a registered model for any number of layers, or load it from the cache.

    None for few layers or unequal ones.
    """
    assert params.trainer.fit is not None, "a step is one of training"
    init = params.trainer.init
    batch = example_batch(init, params.trainer.fit.train_dataloader)
    path = _cache_file(params.trainer, backend, batch, "any_depth")
    cached = load(_DEEP, path)
    if cached is not None:
        return cached
    shapes, group = shapes_of(init), group_of_samples(init.model.dump())
    pair = capture_shallow(init, backend, batch, _sizes(init), shapes)
    one = pair and capture_shallow(init, backend, batch, (group,), shapes)
    if pair is None or one is None:
        return None
    found = AnyDepth(_unscheduled(pair), _unscheduled(one), type(backend.model).__name__)
    optimizer = found.pair.captured[0].optimizer
    if optimizer is None or not optimizer.averages:  # their decay is a schedule, too
        store(_DEEP, found, path)
    return found


def _unscheduled(step: ShallowStep) -> ShallowStep:
    """Return a step without schedules of its optimizer: no cost depends on them, and no file
    can keep them.
    """
    return replace(step, captured=tuple(map(_at_any_time, step.captured)))


def _at_any_time(at: AtSize) -> AtSize:
    if at.optimizer is None:
        return at
    groups = tuple(replace(group, schedules={}) for group in at.optimizer.groups)
    return at._replace(optimizer=replace(at.optimizer, groups=groups))


def _sizes(init: InitConfig) -> tuple[int, int]:
    return captured_sizes(group_of_samples(init.model.dump()))


def _digest(init: InitConfig, batch: Mapping[str, torch.Tensor]) -> str:
    """Return a digest of model, precision, optimizer, shapes, and the code that captures."""
    shapes = [(name, tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in batch.items()]
    sections, sources = deciding_sections(init), sources_digest(*OWN_PACKAGES)
    parts = (VERSION, torch.__version__, sections, shapes, sources)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
