"""Sparse weights: every cluster has the masks and weights of a plain PyTorch loop with masks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

import cstorch
from scripts import reference_loop
from tests.support.runs.tiny_training import GPT, LOADER, Shape, init_config, train_on_cluster
from waferstream.checkpoint.reader import Reader
from waferstream.config.params import InitConfig
from waferstream.workload.data import build_source

STEPS = 5
SECTIONS: dict[str, Any] = {
    "static": 0.75,
    "gmp": {
        "algorithm": "gmp",
        "schedule": {"type": "exp", "init": 0.0, "gamma": -0.5, "final": 0.9},
        "update": {"freq": 2, "start": 2},
    },
    "set": {"algorithm": "set", "sparsity": 0.5, "update": {"steps": [1, 3]}},
    "rigl": {
        "algorithm": "rigl",
        "sparsity": 0.75,
        "param_filter": ["*proj_[qkv]_dense_layer.weight", "*linear_layer.weight"],
        "drop_fraction": {"type": "cosine", "init": 0.5, "half_period": 6},
        "update": {"freq": 2},
    },
}


def sparse(section: Any, **changes: Any) -> InitConfig:
    return init_config(GPT | {"num_hidden_layers": 1}, sparsity=section, **changes)


@cache
def reference(algorithm: str) -> str:
    source = build_source(LOADER, "test")
    batches = (source.batch(step) for step in range(STEPS))
    init = sparse(SECTIONS[algorithm])
    return reference_loop.weights_sha256(reference_loop.train(init, batches, source.batch_size))


@pytest.mark.parametrize(
    ("algorithm", "shape"),
    [
        ("static", Shape(1)),
        ("gmp", Shape(3, 2, 3)),
        ("set", Shape(2, 4, 2)),
        ("rigl", Shape(1)),
        ("rigl", Shape(3, 2, 3)),
    ],
)
def test_masked_training_equals_the_plain_loop(algorithm: str, shape: Shape) -> None:
    """Bit for bit, with clipping, for any number of systems and servers."""
    found = train_on_cluster(sparse(SECTIONS[algorithm]), shape, STEPS)
    assert found == reference(algorithm)


def test_resumed_run_continues_the_masks(tmp_path: Path) -> None:
    """Three steps, a checkpoint, and two more on another cluster are five steps."""
    path, init = tmp_path / "checkpoint.mdl", sparse(SECTIONS["rigl"])
    train_on_cluster(init, Shape(2, servers=2), 3, save=path)
    masks = cstorch.load(path)["sparsity"]
    assert masks
    assert all(0.7 < 1 - float(mask.float().mean()) < 0.8 for mask in masks.values())
    reader, keys = Reader(path), [f"model.{name}" for name in masks]
    assert all(4 * reader.stored_bytes(key) == reader.tensors[key].num_bytes for key in keys)
    weights = cstorch.load(path)["model"]
    assert not any(bool(weights[name][~mask].any()) for name, mask in masks.items())
    assert train_on_cluster(init, Shape(1, 4, 1), STEPS - 3, restore=path) == reference("rigl")


@pytest.mark.parametrize("has_replicas", [False, True], ids=["replay", "replica"])
def test_masks_of_a_lost_server_return(has_replicas: bool, tmp_path: Path) -> None:
    """Lost in the step after a mask has changed, with masters and masks in flash."""
    shape = Shape(
        2,
        servers=2,
        restarts=2,
        faults=("wgt-1@3:exception",),
        folder=tmp_path,
        flash=(tmp_path, 20_000),
        has_replicas=has_replicas,
    )
    assert train_on_cluster(sparse(SECTIONS["rigl"]), shape, STEPS) == reference("rigl")


def test_overflows_and_clipped_values_count_what_is_not_masked() -> None:
    """A dynamic loss scale skips the same steps, and masks change with the steps that are applied."""
    precision = {
        "fp16_type": "float16",
        "loss_scaling_factor": "dynamic",
        "initial_loss_scale": 2.0**19,
        "steps_per_increase": 1,
        "max_gradient_norm": 0.5,
        "max_gradient_value": 0.01,
    }
    init = sparse(SECTIONS["rigl"], precision=precision)
    source = build_source(LOADER, "test")
    batches = (source.batch(step) for step in range(STEPS))
    loop = reference_loop.train(init, batches, source.batch_size)
    found = train_on_cluster(init, Shape(2, servers=2), STEPS)
    assert found == reference_loop.weights_sha256(loop)
