"""cbfloat16 on the cluster equals a plain PyTorch loop that rounds in the same places."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from scripts import reference_loop
from tests.support.nightly import nightly
from tests.support.runs.tiny_training import (
    GPT,
    LLAMA,
    LOADER,
    Shape,
    init_config,
    train_on_cluster,
)
from waferstream.config.params import InitConfig
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model

STEPS = 1  # the plain loop runs every op twice
MODELS = {
    "gpt": GPT | {"num_hidden_layers": 1},
    "llama": LLAMA | {"num_hidden_layers": 1},
}


def in_cbfloat16(model: str, level: int, **precision: Any) -> InitConfig:
    section = {
        "fp16_type": "cbfloat16",
        "precision_opt_level": level,
        "loss_scaling_factor": "dynamic",
        "initial_loss_scale": 2.0**12,
        "max_gradient_norm": 0.5,
    }
    return init_config(MODELS[model], precision={**section, **precision})


@cache
def reference(model: str, level: int) -> str:
    source = build_source(LOADER, "test")
    batches = (source.batch(step) for step in range(STEPS))
    trained = reference_loop.train(in_cbfloat16(model, level), batches, source.batch_size)
    return reference_loop.weights_sha256(trained)


@pytest.mark.parametrize(
    ("model", "level", "shape"),
    [
        *nightly(("gpt", 1, Shape(1, 4, 1))),
        ("gpt", 1, Shape(3, 2, 3)),
        ("gpt", 0, Shape(2, 2, 2)),
        ("llama", 2, Shape(4, 2, 3)),
    ],
)
def test_weights_equal_those_of_the_plain_loop(model: str, level: int, shape: Shape) -> None:
    """Bit for bit on any cluster, at each precision level."""
    assert train_on_cluster(in_cbfloat16(model, level), shape, STEPS) == reference(model, level)


def test_types_of_16_bits_round_differently() -> None:
    """cbfloat16, float16 and bfloat16 are three ways to train."""
    digests = [reference("gpt", 1)]
    for half in ("float16", "bfloat16"):
        init = in_cbfloat16("gpt", 1, fp16_type=half)
        digests.append(train_on_cluster(init, Shape(1), STEPS))
    untrained = reference_loop.weights_sha256(build_model(init.model.dump(), init.seed))
    assert len({*digests, untrained}) == 4
