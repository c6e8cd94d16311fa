"""Checkpoints of a user's program: whole files or none, tensors read when they are needed."""

import shutil

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


def test_what_is_saved_can_be_loaded(backend, tmp_path):
    """Weights and optimizer state as tensors, the rest as it was."""
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


def test_a_part_can_be_saved(backend, tmp_path):
    """The model alone, for whoever only wants to look at it."""
    path = tmp_path / "c.mdl"
    cstorch.save({"model": {}}, str(path))
    state = cstorch.load(str(path))
    assert state.keys() == {"model"}
    with pytest.raises(KeyError):
        state["model"]["unknown"]


def test_nothing_of_the_cluster_is_not_a_checkpoint(backend, tmp_path):
    """Plain data can be written without us."""
    with raises(CheckpointError, "no-cluster-state"):
        cstorch.save({"global_step": 3}, tmp_path / "c.mdl")


def test_an_older_file_is_replaced_when_the_new_one_is_whole(backend, tmp_path, monkeypatch):
    """A failed save leaves the old checkpoint, and nothing else."""
    path = tmp_path / "c.mdl"
    cstorch.save({"model": {}, "version": 1}, path)
    with pytest.raises(CheckpointError):
        cstorch.save({"model": {}, "version": object()}, path)
    assert cstorch.load(path)["version"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["c.mdl"]
    cstorch.save({"model": {}, "version": 2}, path)
    assert cstorch.load(path)["version"] == 2


def test_the_bytes_are_on_the_disk_before_the_name_is(backend, tmp_path, monkeypatch):
    """A power failure leaves the whole file or none, as for the checkpoints of a folder."""
    flushed = []
    monkeypatch.setattr(files, "_flush", lambda path: flushed.append(path.name))
    cstorch.save({"model": {}}, tmp_path / "c.mdl")
    assert flushed == [".c.mdl.partial", tmp_path.name]


def test_what_a_killed_save_leaves_is_removed_by_the_next_run(backend, tmp_path, monkeypatch):
    """Whatever hidden files lie in the folder while the servers write, prepare() knows them all."""
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


def test_a_folder_that_is_not_there_is_an_error(backend, tmp_path):
    """Named, before the training goes on without checkpoints."""
    with pytest.raises(CheckpointError) as caught:
        cstorch.save({"model": {}}, tmp_path / "missing" / "c.mdl")
    assert "missing" in str(caught.value)


def test_saving_needs_a_running_cluster(tmp_path):
    """There are no weights before the first step."""
    with running_backend(), raises(WaferStreamError, "cluster-not-running"):
        cstorch.save({"model": {}}, tmp_path / "c.mdl")


def test_loading_what_is_no_checkpoint_is_an_error(tmp_path):
    """With the name of the file."""
    path = tmp_path / "c.mdl"
    path.write_text("nonsense")
    with pytest.raises(CheckpointError, match="damaged"):
        cstorch.load(path)
