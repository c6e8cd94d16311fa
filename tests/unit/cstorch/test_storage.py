"""Checkpoints of a user's program: complete files only, tensors read on access."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import cstorch
from appliance.checkpoints import LOCK_NAME, CheckpointFolder
from tests.support.cstorch_program import executor, losses, running_backend, training_step
from tests.support.errors import raises
from wsc.core import files
from wsc.core.errors import CheckpointError, WaferStreamError


@pytest.fixture
def backend(backend):
    """After one step with momentum, so that there is state of every kind."""
    losses(training_step(backend, momentum=0.9), executor(1))
    return backend


def test_load_returns_what_was_saved(backend: cstorch.Backend, tmp_path: Path) -> None:
    """Weights and optimizer state are tensors; other values are equal."""
    path = tmp_path / "c.mdl"
    cstorch.save({"model": {}, "optimizer": {}, "note": [1, {"a": None}]}, path)
    state = cstorch.load(path)
    masters = backend.cluster.masters([name for name, _ in backend.model.named_parameters()])
    assert state.keys() == {"note", "model", "optimizer"}
    assert state["note"] == [1, {"a": None}]
    assert set(state["model"]) == set(masters)
    for name, array in masters.items():
        assert torch.equal(state["model"][name], torch.from_numpy(array))
    assert "state.layers.0.weight.momentum_buffer" in state["optimizer"]


def test_save_of_the_model_alone(backend: cstorch.Backend, tmp_path: Path) -> None:
    """The checkpoint has no other state."""
    path = tmp_path / "c.mdl"
    cstorch.save({"model": {}}, str(path))
    state = cstorch.load(str(path))
    assert state.keys() == {"model"}
    with pytest.raises(KeyError):
        state["model"]["unknown"]


def test_save_without_a_cluster_state_is_refused(backend: cstorch.Backend, tmp_path: Path) -> None:
    """The cluster would write nothing."""
    with raises(CheckpointError, "no-cluster-state"):
        cstorch.save({"global_step": 3}, tmp_path / "c.mdl")


def test_save_replaces_an_older_file_only_when_complete(
    backend: cstorch.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed save leaves the old checkpoint and no other file."""
    path = tmp_path / "c.mdl"
    cstorch.save({"model": {}, "version": 1}, path)
    with pytest.raises(CheckpointError):
        cstorch.save({"model": {}, "version": object()}, path)
    assert cstorch.load(path)["version"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["c.mdl"]
    cstorch.save({"model": {}, "version": 2}, path)
    assert cstorch.load(path)["version"] == 2


def test_save_flushes_the_file_before_renaming(
    backend: cstorch.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure leaves the whole file or none, as for the checkpoints of a folder."""
    flushed = []
    monkeypatch.setattr(files, "_flush", lambda path: flushed.append(path.name))
    cstorch.save({"model": {}}, tmp_path / "c.mdl")
    assert flushed == [".c.mdl.partial", tmp_path.name]


def test_files_of_a_killed_save_are_removed_by_prepare(
    backend: cstorch.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every hidden file that exists while the servers write is known to prepare()."""
    folder, killed = CheckpointFolder(tmp_path / "living"), tmp_path / "killed"
    save = cstorch.Backend.save

    def save_and_look(*args):
        save(*args)
        shutil.copytree(folder.path, killed)

    monkeypatch.setattr(cstorch.Backend, "save", save_and_look)
    with folder.draft(1) as draft:
        cstorch.save({"model": {}}, draft.partial)
    assert len(list(killed.iterdir())) > 1
    CheckpointFolder(killed).prepare()
    assert [file.name for file in killed.iterdir()] == [LOCK_NAME]


def test_save_into_a_missing_folder_is_refused(backend: cstorch.Backend, tmp_path: Path) -> None:
    """The error names the folder."""
    with pytest.raises(CheckpointError) as caught:
        cstorch.save({"model": {}}, tmp_path / "missing" / "c.mdl")
    assert "missing" in str(caught.value)


def test_save_needs_a_running_cluster(tmp_path: Path) -> None:
    """There are no weights before the first step."""
    with running_backend(), raises(WaferStreamError, "cluster-not-running"):
        cstorch.save({"model": {}}, tmp_path / "c.mdl")


def test_load_of_another_file_is_refused(tmp_path: Path) -> None:
    """The error has a code of its own."""
    path = tmp_path / "c.mdl"
    path.write_text("nonsense")
    with raises(CheckpointError, "checkpoint-damaged"):
        cstorch.load(path)
