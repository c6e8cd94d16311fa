"""Stochastic rounding on the cluster equals a plain PyTorch loop that draws with the same keys."""

from __future__ import annotations

from functools import cache
from pathlib import Path
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

STEPS = 2
"""Steps of the GPT; others train one."""
MODELS = {
    "gpt": GPT | {"num_hidden_layers": 1},
    "llama": LLAMA | {"num_hidden_layers": 1},
}
SCALED = {"loss_scaling_factor": "dynamic", "initial_loss_scale": 2.0**12}


def by_chance(model: str, half: str, level: int = 1, **precision: Any) -> InitConfig:
    section = {
        "fp16_type": half,
        "precision_opt_level": level,
        "stochastic_rounding": True,
        "max_gradient_norm": 0.5,
        **({} if half == "bfloat16" else SCALED),
    }
    return init_config(MODELS[model], precision={**section, **precision})


@cache
def reference(model: str, half: str, level: int = 1, steps: int = STEPS) -> str:
    source = build_source(LOADER, "test")
    batches = (source.batch(step) for step in range(steps))
    trained = reference_loop.train(by_chance(model, half, level), batches, source.batch_size)
    return reference_loop.weights_sha256(trained)


@pytest.mark.parametrize(
    ("model", "half", "level", "shape"),
    [
        *nightly(("gpt", "bfloat16", 1, Shape(1, 4, 1))),
        ("gpt", "bfloat16", 1, Shape(3, 2, 3)),
        *nightly(("llama", "float16", 2, Shape(2, 2, 2))),
        ("llama", "cbfloat16", 0, Shape(4, 2, 3)),
    ],
)
def test_weights_equal_those_of_the_plain_loop(
    model: str, half: str, level: int, shape: Shape
) -> None:
    """Bit for bit on any cluster, in every half type, at each precision level."""
    steps = STEPS if model == "gpt" else 1
    found = train_on_cluster(by_chance(model, half, level), shape, steps)
    assert found == reference(model, half, level, steps)


def test_lost_server_and_restart_change_no_draw(tmp_path: Path) -> None:
    """Steps that run again draw what they drew before, also from a checkpoint."""
    init, path = by_chance("gpt", "bfloat16"), tmp_path / "checkpoint.mdl"
    lost = Shape(2, 2, 2, restarts=1, faults=("wgt-1@2:exception",), folder=tmp_path)
    assert train_on_cluster(init, lost, STEPS) == reference("gpt", "bfloat16")
    train_on_cluster(init, Shape(1), 1, save=path)
    assert train_on_cluster(init, Shape(2), 1, restore=path) == reference("gpt", "bfloat16")


def test_array_of_pes_has_one_answer_too() -> None:
    """The engine adds in its own order, and rounds its fp32 sums with the same keys."""
    init = by_chance("gpt", "bfloat16")
    engine = {"default": "wafer", "rows": 8, "columns": 8}
    found = {train_on_cluster(init, Shape(num, engine=engine), 1) for num in (1, 2)}
    assert len(found) == 1
    nearest = by_chance("gpt", "bfloat16", stochastic_rounding=False)
    assert train_on_cluster(nearest, Shape(engine=engine), 1) not in found
