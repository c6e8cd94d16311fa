"""A model of the zoo, captured with a few layers instead of all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from modelzoo.models.registry import build_model, model_config
from tests.support.tiny_models import SIZES, TINY_MODELS
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.depth import CAPTURED_LAYERS, Stack, is_like
from wsc.compiler.precision import StreamPrecision
from wsc.core.program import Program


def captured(name: str, num_layers: int) -> Program:
    """A training step of the smallest model of a family."""
    sizes: dict[str, Any] = {"name": name, **SIZES, **TINY_MODELS[name]}
    config = sizes | {"num_hidden_layers": num_layers}
    with torch.device("meta"):
        model = build_model(config, seed=0)
    features = model_config(config).features()

    def step(batch: list[torch.Tensor]) -> list[torch.Tensor]:
        loss = model(**dict(zip([f.name for f in features], batch, strict=True)))
        loss.backward()
        return [loss]

    inputs = [(f.name, torch.zeros(2, *f.shape, dtype=f.dtype)) for f in features]
    request = CompileRequest(StreamPrecision(), 2, 1, "a test")
    return compile_step(step, model, inputs, request)[0].program


@pytest.mark.parametrize("name", ["dit"])
def test_a_few_layers_tell_of_all(name: str) -> None:
    """Also where all layers read, and send gradients to, one condition."""
    shallow = captured(name, CAPTURED_LAYERS)
    assert is_like(Stack.of(shallow, 7).deepened(shallow), captured(name, 7))
