"""Activations that leave a node and come back change no bit, for every number of systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.coordinator.commands import ReadPeakBytes
from cstorch import Backend
from tests.support.errors import raises
from tests.support.models.tiny_models import tiny
from tests.support.nightly import nightly
from tests.support.programs.cstorch_program import cluster_of
from tests.support.runs.tiny_training import GPT, Shape, init_config, train_on_cluster
from tests.support.runs.uneven_samples import random_data
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.machine.hardware import CS2
from waferstream.machine.sram import code_bytes

ENOUGH = 1 << 30
SHAPES = [
    Shape(1, activation_servers=1, activation_memory=70_000),
    Shape(3, activation_servers=2, activation_memory=200_000),
    *nightly(
        Shape(2, activation_servers=5, activation_memory=134_000),
        Shape(8, activation_servers=3, activation_memory=540_000),
        Shape(3, verified=1.0, activation_servers=2, activation_memory=400_000),
    ),
]


@pytest.fixture(scope="module")
def whole() -> str:
    """Return the digest of a run whose nodes have room for everything."""
    digest: str = train_on_cluster(init_config(), Shape(2, activation_memory=ENOUGH))
    return digest


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.num_csx} systems")
def test_weights_do_not_depend_on_activation_servers(shape: Shape, whole: str) -> None:
    assert train_on_cluster(init_config(), shape) == whole


@pytest.mark.nightly
def test_smaller_micro_batches_may_be_cut_otherwise() -> None:
    """A vision transformer of one sample has views where others have copies."""
    section = tiny("vision_transformer")
    init, data = init_config(section), random_data(section)
    cramped = Shape(3, activation_servers=2, activation_memory=1_000_000)
    expected = train_on_cluster(init, Shape(1), data=data)
    assert train_on_cluster(init, cramped, data=data) == expected


def test_pages_of_a_system_go_to_activation_servers() -> None:
    """Where its SRAM has no room, one for each system unless it is told otherwise."""
    deep = init_config(GPT | {"num_hidden_layers": 6})
    system = {"sram_bytes": code_bytes(CS2) + 12_200, "io_bandwidth_bytes_per_s": 1_000_000}

    def look(backend: Backend) -> tuple[str, dict[str, dict[str, int]]]:
        return backend.weights_digest(), cluster_of(backend).do(ReadPeakBytes())

    def train(shape: Shape, **machine: Any) -> tuple[str, dict[str, dict[str, int]]]:
        found: tuple[str, dict[str, dict[str, int]]] = train_on_cluster(
            deep, shape, 2, inspect=look, machine=machine
        )
        return found

    expected, _ = train(Shape(1))
    digest, peaks = train(Shape(2), system=system)
    kept, none = train(Shape(2, activation_servers=0), system=system)
    assert digest == kept == expected
    assert {role for role in peaks if role.startswith("act")} == {"act-0", "act-1"}
    assert not any(role.startswith("act") for role in none)
    assert peaks["csx-0"]["activations"] == none["csx-0"]["activations"] <= 12_200
    assert peaks["act-0"]["activations"] > 0


def test_memory_that_is_too_small_is_refused(tmp_path: Path) -> None:
    """Before anything starts."""
    shape = Shape(2, activation_servers=1, activation_memory=1000, folder=tmp_path)
    with raises(ApplianceResourceExhausted, "activations-exceed-memory"):
        train_on_cluster(init_config(), shape)


@pytest.mark.ray
@pytest.mark.timeout(400)
def test_killed_activation_server_is_replaced(
    tmp_path: Path, whole: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In the running cluster: the step in progress runs again, and the weights are the same."""
    shape = Shape(
        2,
        kind="ray",
        restarts=1,
        faults=("act-1@2/activations:kill",),
        folder=tmp_path,
        cores=2,
        activation_servers=2,
        activation_memory=134_000,
    )
    with caplog.at_level("WARNING", "waferstream"):
        assert train_on_cluster(init_config(), shape) == whole
    told = [record.message for record in caplog.records if "Recovery" in record.message]
    assert [line.split()[1:4] for line in told[:1]] == [["act-1", "died:", "replace,"]]
