"""The training step of a model, compiled at micro-batch sizes without weights, data or cluster.

Model, optimizer and step are built as for a run, on torch's meta device. Of a deep model, a few
layers are captured and the middle one is replicated.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

import cstorch
from cstorch.backend import Backend
from cstorch.trace import TracedStep
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS
from waferstream.compiler.derivation.stacks import Shape, Stacks
from waferstream.config.params import InitConfig
from waferstream.config.shrinking.shrink import tags_left
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import Program
from waferstream.training.setup.model import make_model, make_optimizer, make_scaler
from waferstream.training.setup.steps import training_step
from waferstream.workload.model_config import ModelConfig
from waferstream.workload.models import known_config

_UNITS = (3, CAPTURED_LAYERS)
"""Units of layers to capture; three do if the first and last are neighbours like all others."""

log = logging.getLogger("waferstream")


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
    model = model_of(init)
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


def shapes_of(init: InitConfig) -> dict[str, Shape]:
    """Return the shapes of all parameters of the model of a configuration."""
    with torch.device("meta"):
        return {name: tuple(p.shape) for name, p in make_model(init).named_parameters()}


def model_of(init: InitConfig) -> ModelConfig | None:
    """Return the configuration of a registered model, None for another one."""
    return known_config(init.model.dump(), "trainer.init.model")


def _capture_deepened(
    init: InitConfig, backend: Backend, batch: Any, sizes: Sequence[int]
) -> list[AtSize] | None:
    """Capture a few layers and replicate the middle ones; None for few layers or unequal ones."""
    if model_of(init) is None:
        return None
    shapes = shapes_of(init)
    shallow = capture_shallow(init, backend, batch, sizes, shapes)
    return None if shallow is None else shallow.deepened(shapes)


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
