"""Accessors of the backend of this process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import cstorch
from cstorch import current
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    executor,
    loader,
    losses,
    model_of,
    training_step,
)
from waferstream.core.config import validate
from waferstream.core.digest import weights_digest
from waferstream.core.errors import ProgramOrderError


def test_accessors_answer_without_a_backend() -> None:
    """Models and loaders may be tried without one."""
    assert not cstorch.use_cs()
    assert cstorch.current_torch_device() == torch.device("cpu")


def test_accessors_name_what_belongs_to_the_backend(backend: cstorch.Backend) -> None:
    """The executor is known while its loop runs."""
    assert cstorch.use_cs()
    assert cstorch.current_torch_device() == backend.torch_device
    with raises(ProgramOrderError, "no-loop"):
        cstorch.current_executor()
    loop = executor(1)
    assert [cstorch.current_executor() for _ in loop] == [loop]


def test_use_cs_is_true_on_an_input_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has no backend; its loader must yield what that of the user's process yields."""
    monkeypatch.setattr(current, "_is_input_worker", False)
    assert loader(cstorch.use_cs).source()
    assert cstorch.use_cs()


def test_to_cpu_takes_structures(backend: cstorch.Backend) -> None:
    """Values that are not tensors are kept."""
    value: dict[str, Any] = {"x": torch.ones(2), "more": [torch.zeros(1), "text"]}
    found = backend.to_cpu(value)
    assert torch.equal(found["x"], value["x"])
    assert found["more"][1] == "text"


def test_backend_of_an_earlier_cell_is_replaced(
    backend: cstorch.Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model keeps the trained weights; a backend whose loop runs is kept."""
    losses(training_step(backend), executor(1))
    trained = backend.weights_digest()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    for _ in executor(1):
        with pytest.raises(RuntimeError, match="its executor loop runs"):
            cstorch.backend("CPU")
    newer = cstorch.backend("CPU")
    assert cstorch.current_backend() is newer
    assert weights_digest(model_of(backend).state_dict().items()) == trained
    newer.shutdown()


def test_cluster_file_in_the_working_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that the program names itself wins."""
    (tmp_path / "cluster.yaml").write_text("machine: {system: CS-3}\nruntime: {kind: local}\n")
    monkeypatch.chdir(tmp_path)
    for own, expected in ({}, "CS-3"), ({"cluster": {"machine": {"system": "CS-2"}}}, "CS-2"):
        config = validate(cstorch.ClusterConfig, own, "test")
        backend = cstorch.backend("CSX", cluster_config=config)
        assert backend.cluster_config.cluster.machine.system.name == expected
        backend.shutdown()
