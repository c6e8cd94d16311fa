"""The training step of a run as a program, captured without weights, data or cluster.

Model, optimizer and step are built as for a run, on torch's meta device. The step is compiled at
two micro-batch sizes, from which all larger sizes follow; where a micro-batch is a single group of
samples, or a single sample, also at that size. Of a deep model, a few layers are captured and the
middle one is replicated. The captured step is cached as JSON beside the compile artifacts
of runs, under a digest of everything that decides it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter
from torch.utils import _pytree as pytree

import cstorch
from appliance.input.batches import GlobalBatches
from cstorch.backend import Backend
from cstorch.trace import TracedStep
from memoryx.optim.cost import update_cost, waits_for_all
from memoryx.optim.rule import rule_named
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS
from waferstream.compiler.derivation.scale import captured_sizes
from waferstream.compiler.derivation.stacks import Shape, Stacks
from waferstream.config.params import InitConfig, Params, TrainerConfig
from waferstream.config.sections.init import DataLoaderConfig
from waferstream.config.shrinking.shrink import tags_left
from waferstream.core.errors import ConfigError, DataError
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import Program
from waferstream.host.sources import OWN_PACKAGES, sources_digest
from waferstream.simulation.captured import (
    CapturedStep,
    deciding_sections,
    load,
    load_captured,
    store,
    store_captured,
)
from waferstream.training.setup.model import make_model, make_optimizer, make_scaler
from waferstream.training.setup.steps import training_step
from waferstream.version import VERSION
from waferstream.workload.data import build_source, check_section, data_processor
from waferstream.workload.model_config import ModelConfig
from waferstream.workload.models import group_of_samples, is_of_zoo, known_config

_UNITS = (3, CAPTURED_LAYERS)
"""Units of layers to capture; three do if the first and last are neighbours like all others."""

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
    model = _config(init)
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


class AtSize(NamedTuple):
    """A step compiled at one micro-batch size, and the update that follows it."""

    program: Program
    optimizer: OptimizerSpec | None


def capture_at(
    init: InitConfig, backend: Backend, batch: Any, sizes: Sequence[int]
) -> list[AtSize]:
    """Capture the step at each of the micro-batch sizes, with few layers if they are equal."""
    deepened = _capture_deepened(init, backend, batch, sizes)
    return deepened or _capture_at(init, backend, batch, sizes)


def _capture_at(
    init: InitConfig, backend: Backend, batch: Any, sizes: Sequence[int]
) -> list[AtSize]:
    """Compile the step at each of the micro-batch sizes."""
    with torch.device("meta"):
        model = make_model(init)
    backend.session.model.unregister()  # it may hold the model at another depth
    cstorch.compile(model, backend)
    step = training_step(init, model, *make_optimizer(init, model), make_scaler(init))
    assert isinstance(step, TracedStep)
    return compile_at(step, batch, sizes)


def compile_at(step: TracedStep, batch: Any, sizes: Sequence[int]) -> list[AtSize]:
    """Compile a step of the registered model at each of the micro-batch sizes."""
    compiled_steps = (step.compiled_for(size, batch) for size in sizes)
    return [AtSize(compiled.program, optimizer) for compiled, optimizer in compiled_steps]


@dataclass(frozen=True)
class ShallowStep:
    """A step captured with a few layers at several sizes, which stand for any number of them."""

    captured: tuple[AtSize, ...]
    stacks: Stacks

    def deepened(self, shapes: Mapping[str, Shape]) -> list[AtSize] | None:
        """Return the step of a model that differs in its number of layers, at each of the sizes.

        None if it does not follow from what was captured.

        Args:
            shapes: Shapes of all parameters of the model.
        """
        stacks = self.stacks.with_depths(shapes)
        if stacks is None:
            return None
        found = [
            AtSize(deep, _optimizer_of_all_layers(optimizer, stacks))
            for program, optimizer in self.captured
            if (deep := stacks.deepened_to(program, shapes)) is not None
        ]
        return found if len(found) == len(self.captured) else None


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


def _capture_deepened(
    init: InitConfig, backend: Backend, batch: Any, sizes: Sequence[int]
) -> list[AtSize] | None:
    """Capture a few layers and replicate the middle ones; None for few layers or unequal ones."""
    if _config(init) is None:
        return None
    shapes = shapes_of(init)
    shallow = capture_shallow(init, backend, batch, sizes, shapes)
    return None if shallow is None else shallow.deepened(shapes)


def shapes_of(init: InitConfig) -> dict[str, Shape]:
    """Return the shapes of all parameters of the model of a configuration."""
    with torch.device("meta"):
        return {name: tuple(p.shape) for name, p in make_model(init).named_parameters()}


def capture_shallow(
    init: InitConfig,
    backend: Backend,
    batch: Any,
    sizes: Sequence[int],
    shapes: Mapping[str, Shape],
) -> ShallowStep | None:
    """Capture a few layers of a registered model; None for few layers or unequal ones.

    Args:
        init: The configuration.
        backend: The backend to capture on.
        batch: A few samples.
        sizes: Micro-batch sizes.
        shapes: Shapes of all parameters of the model.
    """
    model = _config(init)
    assert model is not None, "only of a registered model it is known where its layers lie"
    whole = model.as_read(init.model.dump())
    for units in _UNITS:
        sections = (_shortened(whole, n * model.layers_of_unit) for n in (units, units + 1))
        few, more = (_with_model(init, section) for section in sections)
        if more.model == _with_model(init, whole).model:
            return None
        (shallow,) = _capture_at(few, backend, batch, sizes[:1])
        (one_more,) = _capture_at(more, backend, batch, sizes[:1])
        programs = shallow.program, one_more.program
        stacks = Stacks.checked(*programs, shapes, units, model.layers_of_unit)
        if stacks is not None:
            others = _capture_at(few, backend, batch, sizes[1:]) if sizes[1:] else []
            return ShallowStep((shallow, *others), stacks)
    log.info("The layers are not equal, so all of them are captured")
    return None


def _with_model(init: InitConfig, section: Mapping[str, Any]) -> InitConfig:
    """Return the configuration with this section of a model, and no tags of absent layers."""
    model = type(init.model).model_validate(section)
    return init.model_copy(update={"model": model, **tags_left(init, section)})


def _shortened(section: Any, num_layers: int) -> Any:
    """Return a section of which no stack has more layers."""
    if isinstance(section, list):
        return [_shortened(each, num_layers) for each in section]
    if not isinstance(section, Mapping):
        return section
    return {
        key: min(value, num_layers)
        if key.endswith("num_hidden_layers") and value is not None
        else _shortened(value, num_layers)
        for key, value in section.items()
    }


def _optimizer_of_all_layers(
    optimizer: OptimizerSpec | None, stacks: Stacks
) -> OptimizerSpec | None:
    """Return an optimizer whose groups and averages hold the weights of all layers."""
    if optimizer is None:
        return None
    groups = (replace(group, names=stacks.names(group.names)) for group in optimizer.groups)
    sparsity = (
        replace(spec, name=name)
        for spec in optimizer.sparsity
        for name in stacks.names((spec.name,))
    )
    averages = {
        name: replace(each, average=name, source=source)
        for each in optimizer.averages
        for name, source in zip(
            stacks.names((each.average,)), stacks.names((each.source,)), strict=True
        )
    }
    in_order = stacks.names(each.average for each in optimizer.averages)
    return replace(
        optimizer,
        groups=tuple(groups),
        sparsity=tuple(sparsity),
        averages=tuple(averages[name] for name in in_order),
    )


def _sizes(init: InitConfig) -> tuple[int, int]:
    return captured_sizes(group_of_samples(init.model.dump()))


def _config(init: InitConfig) -> ModelConfig | None:
    return known_config(init.model.dump(), "trainer.init.model")


def _digest(init: InitConfig, batch: Mapping[str, torch.Tensor]) -> str:
    """Return a digest of model, precision, optimizer, shapes, and the code that captures."""
    shapes = [(name, tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in batch.items()]
    sections, sources = deciding_sections(init), sources_digest(*OWN_PACKAGES)
    parts = (VERSION, torch.__version__, sections, shapes, sources)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
