"""Files of weights of other programs: what kind each is, and what is read from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.support.errors import raises
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.core.errors import CheckpointError
from waferstream.workload.weight_files import read_weights
from waferstream.workload.weight_kinds import Kind, kind_of

WEIGHT = torch.arange(6.0).view(2, 3)


def write_ours(path: Path) -> None:
    append_tensors(path, "model", {"w": WEIGHT.numpy()})
    write_metadata(path, {"global_step": 0})


def write_vendors(path: Path) -> None:
    """Write a file as the vendor's package does: LZ4, bfloat16 as int16, tied weights as links."""
    half = WEIGHT.bfloat16().view(torch.int16).numpy()
    with h5py.File(path, "w") as file:
        file.attrs["__cstorch_version__"] = "2.10.0"
        for key, values, kind in (("w", WEIGHT.numpy(), "float32"), ("half", half, "bfloat16")):
            made = file.create_dataset(f"model.{key}", data=values, **hdf5plugin.LZ4())
            made.attrs.update({"__NUMPY__": True, "dtypes": [f"torch.{kind}"]})
        file["optimizer.state.w"] = np.ones(2)
        link = {
            "model.tied.__METADATA__": {
                "key": "model.w",
                "__LINKED__": True,
                "__TYPE__": "LinkedObject",
            }
        }
        file.attrs["model.tied.__METADATA__"] = json.dumps(link)


WRITERS: dict[Kind, Any] = {
    Kind.OURS: write_ours,
    Kind.VENDOR: write_vendors,
    Kind.PICKLE: lambda path: torch.save({"model": {"w": WEIGHT}, "global_step": 3}, path),
    Kind.SAFETENSORS: lambda path: save_file({"w": WEIGHT}, path),
    Kind.GGUF: lambda path: path.write_bytes(b"GGUF\x03\0\0\0\0\0\0\0"),
    Kind.FOLDER: Path.mkdir,
    Kind.OTHER: lambda path: path.write_text("weights"),
}
READ = (Kind.OURS, Kind.VENDOR, Kind.PICKLE, Kind.SAFETENSORS)


@pytest.mark.parametrize("kind", WRITERS, ids=lambda kind: kind.name)
def test_kind_is_told_by_content(kind: Kind, tmp_path: Path) -> None:
    """Whatever the file is called; the weights of those that have some are read."""
    path = tmp_path / ("w.safetensors" if kind is Kind.SAFETENSORS else "w.mdl")
    WRITERS[kind](path)
    assert kind_of(path) is kind
    if kind in READ:
        assert torch.equal(read_weights(path)["w"], WEIGHT)
        return
    code = "checkpoint-of-other-kind" if kind is Kind.GGUF else "hf-weights-not-readable"
    with raises(CheckpointError, code):
        read_weights(path)


def test_vendors_halves_and_tied_weights_are_read(tmp_path: Path) -> None:
    write_vendors(tmp_path / "w.mdl")
    found = read_weights(tmp_path / "w.mdl")
    assert found.keys() == {"w", "half", "tied"}
    assert torch.equal(found["half"], WEIGHT.bfloat16())
    assert torch.equal(found["tied"], WEIGHT)


def test_weights_elsewhere_are_not_read(tmp_path: Path) -> None:
    """A file of a stranger could name others of the user."""
    write_vendors(tmp_path / "w.mdl")
    with h5py.File(tmp_path / "w.mdl", "a") as file:
        file["model.other"] = h5py.ExternalLink("secret.h5", "w")
    with raises(CheckpointError, "checkpoint-damaged"):
        read_weights(tmp_path / "w.mdl")


@pytest.mark.parametrize("content", [[1], {"model": [1]}, {"w": 1}])
def test_pickle_of_other_things_is_refused(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.mdl")
    with raises(CheckpointError, "checkpoint-damaged"):
        read_weights(tmp_path / "w.mdl")


def test_compression_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_vendors(tmp_path / "w.mdl")
    monkeypatch.setattr("h5py.h5z.filter_avail", lambda _: False)
    with raises(CheckpointError, "hdf5plugin-missing"):
        read_weights(tmp_path / "w.mdl")
