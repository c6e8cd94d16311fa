"""DINO trains as in a plain loop: averages in MemoryX, and means over the batch of each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import cstorch
from scripts import reference_loop
from tests.support.models.tiny_dino import DINO, SPREAD, TRUNK, write_images
from tests.support.nightly import nightly
from tests.support.runs.tiny_training import (
    MICRO_BATCH_SIZE,
    Shape,
    init_config,
    train_on_cluster,
)
from waferstream.workload.data import build_source

STEPS = 3


def state_of(backend: cstorch.Backend) -> dict[str, torch.Tensor]:
    model = backend.model
    assert model is not None
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def expected(images: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The state of the plain loop."""
    source = build_source(images, "test")
    batches = map(source.batch, range(STEPS))
    state = reference_loop.train(init_config(DINO), batches, source.batch_size).state_dict()
    teacher, student = (state[f"trunk_{n}.encoder.0.attention.query.weight"] for n in (0, 1))
    assert not torch.equal(teacher, student)
    assert int(state["loss_0.center.num_steps"]) == STEPS
    return state


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("num_csx", [*nightly(1), 2])
def test_weights_and_centers_equal_those_of_the_loop(
    num_csx: int, images: dict[str, Any], expected: dict[str, torch.Tensor]
) -> None:
    """The teacher is the average of the student, and no center depends on the systems."""
    shape = Shape(num_csx, servers=num_csx)
    found = train_on_cluster(init_config(DINO), shape, STEPS, data=images, inspect=state_of)
    assert_same(found, expected)


@pytest.mark.nightly
def test_distances_of_images_equal_those_of_the_loop(images: dict[str, Any]) -> None:
    """The nearest one is looked for in groups, which no system decides."""
    init = init_config(DINO | {"losses": [*DINO["losses"], SPREAD]})
    source = build_source(images, "test")
    model = reference_loop.train(init, map(source.batch, range(2)), source.batch_size)
    expected = reference_loop.weights_sha256(model)
    assert train_on_cluster(init, Shape(3), 2, data=images) == expected


@pytest.mark.nightly
def test_groups_depend_on_no_cluster(images: dict[str, Any]) -> None:
    """Neither those of crops that skip a layer together, nor those of neighbours."""
    student = {**TRUNK, "stochastic_depth_drop_prob": 0.5, "stochastic_depth_group_size": 2}
    teacher, learner = DINO["image_model_trunks"]
    trunks = [teacher, {**learner, "image_model": student}]
    losses = [*DINO["losses"], SPREAD]
    init = init_config(DINO | {"image_model_trunks": trunks, "losses": losses})
    found = {train_on_cluster(init, Shape(n, servers=n), 2, data=images) for n in (1, 3)}
    assert len(found) == 1


def test_lost_servers_are_replaced(
    images: dict[str, Any], expected: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    """With the averages of the step that was done; a replica has them, too."""
    shape = Shape(
        2, servers=2, restarts=1, faults=("wgt-1@2:exception",), has_replicas=True, folder=tmp_path
    )
    found = train_on_cluster(init_config(DINO), shape, STEPS, data=images, inspect=state_of)
    assert_same(found, expected)


def test_cpu_trains_the_same_weights(images: dict[str, Any]) -> None:
    """With one micro-batch in a batch."""
    data = images | {"batch_size": MICRO_BATCH_SIZE}
    one, other = (
        train_on_cluster(
            init_config(DINO), Shape(1), STEPS, data=data, device=device, inspect=state_of
        )
        for device in ("CSX", "CPU")
    )
    assert_same(one, other)


def test_training_goes_on_from_a_checkpoint(
    images: dict[str, Any], expected: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    """It has centers and their steps, and the teacher."""
    init, path = init_config(DINO), tmp_path / "two_steps.mdl"
    train_on_cluster(init, Shape(2), 2, data=images, save=path)
    found = train_on_cluster(init, Shape(1), STEPS - 2, data=images, restore=path, inspect=state_of)
    assert_same(found, expected)
