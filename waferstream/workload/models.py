"""Models by name, and the construction of a model from a section of params.yaml.

Packages offer models as entry points (``waferstream.core.plugins``), as the zoo does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from waferstream.core.config import validate
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.core.plugins import Plugins
from waferstream.workload import user_classes
from waferstream.workload.model_config import ModelConfig

Inputs = list[tuple[str, torch.Tensor]]
"""Named tensors of one micro-batch."""


@dataclass(frozen=True)
class ModelFamily:
    """A model class and the configuration that it is built from."""

    module: Callable[[Any], Any]
    config: type[ModelConfig]


MODELS = Plugins[ModelFamily]("models")
"""Several names may be one class with different values, as in the vendor's model zoo."""


def model_config(config: Mapping[str, Any], where: str = "model") -> ModelConfig:
    """Return the validated model section of params.yaml, found at ``where``; or ConfigError."""
    name = config.get("name")
    if not name:
        raise ConfigError(
            "key 'name' is missing",
            code="model-name-missing",
            where=where,
            rule=MODELS.rule,
        )
    return validate(model_family(str(name), where).config, config, where)


def model_family(name: str, where: str) -> ModelFamily:
    """Return the model of a name, found at ``where``; or ConfigError."""
    if name not in MODELS:
        raise ConfigError(
            "name must be that of a model",
            code="unknown-model",
            where=where,
            value=name,
            rule=MODELS.rule,
            remedy=MODELS.remedy(name),
        )
    return MODELS[name]


def known_config(config: Mapping[str, Any], where: str = "model") -> ModelConfig | None:
    """Return the validated section of a registered model; None for a class of the user's."""
    return None if user_classes.CLASS in config else model_config(config, where)


def is_of_zoo(config: Mapping[str, Any], where: str = "model") -> bool:
    """Return whether a section's model is the zoo's: caches know its code, and no other's."""
    known = known_config(config, where)
    if known is None:
        return False
    parts = (MODELS[known.name].module, type(known))
    return all(part.__module__.startswith("modelzoo.") for part in parts)


def group_of_samples(config: Mapping[str, Any], where: str = "model") -> int:
    """Return how many consecutive samples share a loss; 1 for a class of the user's."""
    known = known_config(config, where)
    return 1 if known is None else known.group_of_samples


def check_model(config: Mapping[str, Any], where: str = "model") -> None:
    """Check a model section without building the model; raise ConfigError."""
    if known_config(config, where) is None:
        own = {key: value for key, value in config.items() if key != user_classes.LOSS}
        user_classes.checked_class(own, where)


def build_model(config: Mapping[str, Any], seed: int, where: str = "model") -> nn.Module:
    """Build the model of a section of params.yaml, initialized from ``seed``.

    The model is on torch's default device; under ``torch.device("meta")`` it takes no memory. The
    global random state is unchanged.

    Args:
        config: The section.
        seed: Seed of all initial weights.
        where: Key path of the section, for errors.

    Raises:
        ConfigError: The section is wrong, or torch has no memory for a tensor of the model.
    """
    if user_classes.CLASS in config:
        return user_classes.make_model(config, seed, where)
    validated = model_config(config, where)
    device = torch.get_default_device()
    with _tensors_fitting(where):
        with torch.device("meta"), _Uninitialized():
            model = MODELS[validated.name].module(validated)
        # As Module.to_empty, whose empty_like of meta tensors imports what compiles (0.5 s).
        model._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device=device))
    model.initialize(seed)
    initialized: nn.Module = model
    return initialized


@contextmanager
def _tensors_fitting(where: str) -> Iterator[None]:
    """Raise ConfigError for a tensor that torch cannot make, as of a size above its largest."""
    try:
        yield
    except WaferStreamError:
        raise
    except (RuntimeError, TypeError) as error:  # of sizes above 64 bits torch raises the latter
        raise ConfigError(
            "torch cannot make a tensor of the model",
            code="model-too-large",
            where=where,
            value=str(error).partition("\n")[0],
            remedy="lower the sizes of the section",
        ) from error


class _Uninitialized(TorchFunctionMode):
    """Skips torch's own initialization, which on the meta device imports Dynamo (2 s)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if getattr(func, "__module__", None) == nn.init.__name__:
            return options["tensor"] if "tensor" in options else args[0]
        return func(*args, **options)


@dataclass(frozen=True)
class ParameterNames:
    """The parameters of a model, in its order: shapes by name, and other names of the same."""

    shapes: Mapping[str, tuple[int, ...]]
    tied: Mapping[str, str]
    """Name in ``shapes`` by each further name of a parameter."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a parameter by any of its names."""
        return self.shapes[self.tied.get(name, name)]


def parameter_names(config: Mapping[str, Any]) -> ParameterNames:
    """Return the names of the parameters of a model section."""
    with torch.device("meta"):
        model = build_model(config, seed=0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    tied = {name: names[id(parameter)] for name, parameter in every if name != names[id(parameter)]}
    return ParameterNames(
        {name: tuple(each.shape) for name, each in model.named_parameters()}, tied
    )


def parameter_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the parameter shapes of a model section by name, in the order of the model."""
    return dict(parameter_names(config).shapes)


@dataclass(frozen=True)
class Example:
    """A training step to compile (``waferstream.compiler.compile``) without data or weights."""

    step: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
    model: nn.Module
    inputs: Inputs


def training_example(
    config: Mapping[str, Any], micro_batch_size: int, sequence_length: int | None = None
) -> Example:
    """Return the loss and gradients of one micro-batch of the model of a section.

    The model has no memory for its weights.

    Raises:
        ConfigError: The section is wrong.
    """
    with torch.device("meta"):
        model = build_model(config, seed=0)
    inputs = example_inputs(model_config(config), micro_batch_size, sequence_length)
    names = [name for name, _ in inputs]

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        loss: torch.Tensor = model(**dict(zip(names, batch, strict=True)))
        loss.backward()
        return [loss]

    return Example(step, model, inputs)


def example_inputs(
    config: ModelConfig, micro_batch_size: int, sequence_length: int | None = None
) -> Inputs:
    """Return tensors with the shapes and dtypes of one micro-batch, without values.

    They are allocated but never touched, so they take address space and no memory.
    ``sequence_length`` is that of ``ModelConfig.features``.
    """
    return [
        (feature.name, torch.empty(micro_batch_size, *feature.shape, dtype=feature.dtype))
        for feature in config.features(sequence_length)
    ]
