"""A dynamic loss scale: every cluster skips the steps that a plain PyTorch loop skips."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import cstorch
from scripts import reference_loop
from tests.support.runs.tiny_training import GPT, LOADER, Shape, init_config, train_on_cluster
from waferstream.config.params import InitConfig
from waferstream.workload.data import build_source

STEPS = 7
# The first scales are far too large for float16; a good step or two later they grow again.
DYNAMIC = {
    "fp16_type": "float16",
    "loss_scaling_factor": "dynamic",
    "initial_loss_scale": 2.0**21,
    "max_loss_scale": 2.0**24,
    "steps_per_increase": 1,
}


def overflowing(**precision: Any) -> InitConfig:
    return init_config(GPT | {"num_hidden_layers": 1}, precision={**DYNAMIC, **precision})


@cache
def reference(norm: float | None, value: float | None = None) -> str:
    return digest_of(overflowing(max_gradient_norm=norm, max_gradient_value=value))


def digest_of(init: InitConfig) -> str:
    source = build_source(LOADER, "test")
    batches = (source.batch(step) for step in range(STEPS))
    return reference_loop.weights_sha256(reference_loop.train(init, batches, source.batch_size))


@pytest.mark.parametrize(
    ("shape", "norm", "value"),
    [
        (Shape(1, 4, 1), 0.5, None),
        (Shape(3, 2, 3), 0.5, None),
        (Shape(1, 2, 2), None, None),
        (Shape(4, 4, 3), None, None),
        (Shape(2, 2, 3), None, 0.01),
    ],
)
def test_skipped_steps_equal_the_plain_loop(
    shape: Shape, norm: float | None, value: float | None
) -> None:
    """Bit for bit, with and without clipping; a schedule counts the steps that were applied."""
    init = overflowing(max_gradient_norm=norm, max_gradient_value=value)
    assert train_on_cluster(init, shape, STEPS) == reference(norm, value)


def test_cpu_backend_skips_the_same_steps() -> None:
    """A batch is one micro-batch there, and the rules are those of MemoryX."""
    whole = [{"GlobalFlags": {"csx.performance.micro_batch_size": LOADER["batch_size"]}}]
    config: dict[str, Any] = {"model": GPT | {"num_hidden_layers": 1}, "callbacks": whole}
    init = init_config(**config, precision={**DYNAMIC, "max_gradient_norm": 0.5})
    assert train_on_cluster(init, Shape(1), STEPS, device="CPU") == digest_of(init)


def test_run_skips_some_steps_and_applies_others(tmp_path: Path) -> None:
    """The scale falls to one that float16 can hold, and overflows again when it grows."""
    path = tmp_path / "checkpoint.mdl"
    train_on_cluster(overflowing(), Shape(2, servers=2), STEPS, save=path)
    state = cstorch.load(path)["grad_scaler"]
    assert 0 < state["num_skipped_steps"] < STEPS
    assert DYNAMIC["initial_loss_scale"] > state["loss_scale"] >= 1.0


def test_resumed_run_continues_the_loss_scale(tmp_path: Path) -> None:
    """Three steps, a checkpoint, and four more on another cluster are seven steps."""
    path, init = tmp_path / "checkpoint.mdl", overflowing(max_gradient_norm=0.5)
    train_on_cluster(init, Shape(2, servers=2), 3, save=path)
    found = train_on_cluster(init, Shape(3, 2, 1), STEPS - 3, restore=path)
    assert found == reference(0.5)
