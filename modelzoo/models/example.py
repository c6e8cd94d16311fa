"""A training step to compile without data or weights: what predictions of time start from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from modelzoo.models.registry import build_model, model_config
from modelzoo.models.transformer_config import TransformerConfig

Inputs = list[tuple[str, torch.Tensor]]


@dataclass(frozen=True)
class Example:
    """What ``wsc.compiler.compile.compile_step`` takes: a step, its model, and named inputs."""

    step: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]
    model: nn.Module
    inputs: Inputs


def training_example(
    config: Mapping[str, Any], micro_batch_size: int, sequence_length: int | None = None
) -> Example:
    """Loss and gradients of one micro-batch of the model that a model section describes.

    The model has no memory for its weights. Raises ConfigError if the section is wrong.
    """
    with torch.device("meta"):
        model = build_model(config, seed=0)
    inputs = example_inputs(model_config(config), micro_batch_size, sequence_length)
    names = [name for name, _ in inputs]

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        loss: torch.Tensor = model(**dict(zip(names, batch, strict=True)))
        loss.backward()  # type: ignore[no-untyped-call]
        return [loss]

    return Example(step, model, inputs)


def parameter_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """By name, in the order of the model that a model section describes."""
    with torch.device("meta"):
        model = build_model(config, seed=0)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def example_inputs(
    config: TransformerConfig, micro_batch_size: int, sequence_length: int | None = None
) -> Inputs:
    """Named tensors with the shapes and dtypes of one micro-batch, and no values.

    They are allocated but never touched, so that they cost address space and no memory.
    ``sequence_length`` is as for ``TransformerConfig.features``.
    """
    return [
        (feature.name, torch.empty(micro_batch_size, *feature.shape, dtype=feature.dtype))
        for feature in config.features(sequence_length)
    ]
