"""Checkpoints of a user's program: complete files only, tensors read on access."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from torch import nn

import cstorch
from appliance.checkpoints.folder import LOCK_NAME, CheckpointFolder
from appliance.coordinator.commands import ReadWeights
from cstorch.session import saving
from tests.support.errors import raises
from tests.support.programs.cstorch_program import (
    batches,
    cluster_of,
    evaluation_step,
    executor,
    losses,
    model_of,
    running_backend,
    training_step,
)
from tests.support.roles.remote_weights import counted_reads
from tests.support.runs.tiny_training import Shape
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.core.errors import CheckpointError, WaferStreamError
from waferstream.host import files


@pytest.fixture
def backend(backend: cstorch.Backend) -> cstorch.Backend:
    """Return a backend after one step with momentum: it has state of every kind."""
    losses(training_step(backend, momentum=0.9), executor(1))
    return backend


def test_load_returns_what_was_saved(backend: cstorch.Backend, tmp_path: Path) -> None:
    """Weights and optimizer state are tensors; other values are equal."""
    path = tmp_path / "c.mdl"
    cstorch.save({"model": {}, "optimizer": {}, "note": [1, {"a": None}]}, path)
    state = cstorch.load(path)
    masters = cluster_of(backend).do(
        ReadWeights([name for name, _ in model_of(backend).named_parameters()])
    )
    assert state.keys() == {"note", "model", "optimizer"}
    assert state["note"] == [1, {"a": None}]
    assert set(state["model"]) == set(masters)
    for name, array in masters.items():
        assert torch.equal(state["model"][name], torch.from_numpy(array))
    assert state["optimizer"]["state"][0].keys() == {"step", "momentum_buffer"}


def test_save_of_the_model_alone(backend: cstorch.Backend, tmp_path: Path) -> None:
    """The checkpoint has no other state."""
    path = tmp_path / "c.mdl"
    cstorch.save({"model": {}}, str(path))
    state = cstorch.load(str(path), map_location="cpu")
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
    assert flushed == [f".c.mdl.{os.getpid()}.partial", tmp_path.name]


def test_files_of_a_killed_save_are_removed_by_prepare(
    backend: cstorch.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every hidden file that exists while the servers write is known to prepare()."""
    folder, killed = CheckpointFolder(tmp_path / "living"), tmp_path / "killed"
    save = saving.save

    def save_and_look(*args: Any) -> None:
        save(*args)
        shutil.copytree(folder.path, killed)

    monkeypatch.setattr(saving, "save", save_and_look)
    with folder.draft(1) as draft:
        cstorch.save({"model": {}}, draft.partial)
    assert len(list(killed.iterdir())) > 1
    CheckpointFolder(killed).prepare()
    assert [file.name for file in killed.iterdir()] == [LOCK_NAME]


def test_save_makes_missing_folders(backend: cstorch.Backend, tmp_path: Path) -> None:
    """The parents of the file are made."""
    path = tmp_path / "a" / "b" / "c.mdl"
    cstorch.save({"model": {}}, path)
    assert cstorch.load(path).keys() == {"model"}


def test_save_where_no_folder_can_be_made_is_refused(
    backend: cstorch.Backend, tmp_path: Path
) -> None:
    """A file is in the way; the error names it."""
    (tmp_path / "file").touch()
    with raises(CheckpointError, "checkpoint-not-writable"):
        cstorch.save({"model": {}}, tmp_path / "file" / "c.mdl")


@pytest.mark.parametrize("path", ["s3://bucket/c.mdl", Path("s3://bucket/c.mdl"), "gs://b/c"])
def test_url_is_refused(backend: cstorch.Backend, path: Path | str) -> None:
    """It would become a local folder of that name."""
    with raises(CheckpointError, "checkpoint-not-local"):
        cstorch.save({"model": {}}, path)
    with raises(CheckpointError, "checkpoint-not-local"):
        cstorch.load(path)
    assert not Path("s3:").exists()


class Tied(nn.Module):
    """An output layer tied to the first one, buffers of several dtypes, one not persistent."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
        self.last.weight = self.first.weight
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer("third", torch.full((3,), 1 / 3, dtype=torch.bfloat16))
        self.register_buffer("table", torch.arange(4.0), persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean squared distance of (B, 4) outputs to ``y``."""
        hidden = torch.tanh(self.first(x)) * self.scale
        return (self.last(hidden) - y).square().mean()


def saved_tied_model(path: Path) -> dict[str, torch.Tensor]:
    """Train ``Tied`` with other buffers than its initial ones, save it, return its state dict."""
    with running_backend(Shape(2, servers=2)) as backend:
        backend.session.register(Tied())
        model = model_of(backend)
        model.get_buffer("scale").fill_(0.25)
        model.get_buffer("third").fill_(2 / 3)
        losses(training_step(backend), executor(2))
        cstorch.save({"model": model_of(backend).state_dict()}, path)
        return {name: tensor.clone() for name, tensor in model_of(backend).state_dict().items()}


def test_save_has_all_names_of_the_state_dict(tmp_path: Path) -> None:
    """A tied name is a link to the same tensor; bfloat16 buffers are stored as float32."""
    expected = saved_tied_model(tmp_path / "c.mdl")
    found = cstorch.load(tmp_path / "c.mdl")["model"]
    names = {"first.weight", "first.bias", "last.weight", "scale", "mask", "third"}
    assert found.keys() == expected.keys() == names
    for name, tensor in expected.items():
        assert torch.equal(found[name].to(tensor.dtype), tensor)
    with h5py.File(tmp_path / "c.mdl") as file:
        assert isinstance(file.get("model.last.weight", getlink=True), h5py.SoftLink)


def test_load_state_dict_of_a_checkpoint_is_strict(tmp_path: Path) -> None:
    """Plain PyTorch models take the checkpoint as it is."""
    expected = saved_tied_model(tmp_path / "c.mdl")
    model = Tied()
    model.load_state_dict(cstorch.load(tmp_path / "c.mdl")["model"])
    assert all(torch.equal(model.state_dict()[name], expected[name]) for name in expected)
    assert model.last.weight is model.first.weight


@pytest.mark.parametrize("registers_first", [False, True])
def test_restore_reads_buffers(tmp_path: Path, registers_first: bool) -> None:
    """The traced step has the buffers of the checkpoint, in either order."""
    expected = saved_tied_model(tmp_path / "c.mdl")
    with running_backend() as backend:
        if registers_first:
            backend.session.register(Tied())
        backend.restore(tmp_path / "c.mdl")
        backend.session.register(backend.model or Tied())
        (loss,) = losses(evaluation_step(backend), executor(1))
        state = model_of(backend).state_dict()
        assert all(torch.equal(state[name], expected[name]) for name in expected)
    plain = Tied()
    plain.load_state_dict(expected)
    assert loss == pytest.approx(plain(**batches()[0]).item(), rel=1e-6)


def test_restore_of_a_checkpoint_without_buffers(tmp_path: Path) -> None:
    """Files of earlier versions have parameters only; buffers then keep their values."""
    path, initial = tmp_path / "c.mdl", Tied().state_dict()
    parameters = {"first.weight": torch.ones(4, 4), "first.bias": torch.zeros(4)}
    append_tensors(path, "model", {name: t.numpy() for name, t in parameters.items()})
    write_metadata(path, {})
    with running_backend() as backend:
        backend.session.register(Tied())
        backend.restore(path)
        losses(evaluation_step(backend), executor(1))
        state = model_of(backend).state_dict()
        assert torch.equal(state["last.weight"], torch.ones(4, 4))
        assert torch.equal(state["scale"], initial["scale"])


def test_restore_of_a_buffer_of_another_shape_is_refused(tmp_path: Path) -> None:
    """It would be broadcast."""
    saved_tied_model(tmp_path / "c.mdl")
    model = Tied()
    model.register_buffer("scale", torch.ones(4))
    with running_backend() as backend:
        backend.session.register(model)
        with raises(CheckpointError, "buffer-shape-mismatch"):
            backend.restore(tmp_path / "c.mdl")


@pytest.mark.parametrize("names", [["layers.0.weight"], None], ids=["some", "all"])
def test_save_of_other_tensors_than_the_parameters(
    backend: cstorch.Backend, tmp_path: Path, names: list[str] | None
) -> None:
    """Averaged weights, or some weights only, are written as they are given."""
    state = model_of(backend).state_dict()
    given = {name: state[name] * 0.5 for name in names or state}
    cstorch.save({"model": given, "optimizer": {}}, tmp_path / "c.mdl")
    found = cstorch.load(tmp_path / "c.mdl")
    assert found["model"].keys() == given.keys()
    assert all(torch.equal(found["model"][name], given[name]) for name in given)
    assert found["optimizer"]


def test_save_of_the_state_dict_fetches_nothing(
    backend: cstorch.Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weight servers write what they hold."""
    fetched = counted_reads(backend, monkeypatch)
    cstorch.save({"model": model_of(backend).state_dict()}, tmp_path / "c.mdl")
    assert not fetched


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
