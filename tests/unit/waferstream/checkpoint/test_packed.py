"""Packed tensors of a file: read whole, refused where their mask does not fit, or by old programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.errors import raises
from tests.support.files.checkpoint_files import PACKED_PLACES, PACKED_VALUES, packed_checkpoint
from waferstream.checkpoint import FORMAT_ATTRIBUTE, SPEC_ATTRIBUTE
from waferstream.checkpoint.packed import mask_key, unpack_into
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.seal import SealError, parse_manifest, read_seal
from waferstream.checkpoint.writer import reseal
from waferstream.core.errors import CheckpointError
from waferstream.core.program.program import TensorSpec


def test_packed_tensor_is_read_whole(tmp_path: Path) -> None:
    reader = Reader(packed_checkpoint(tmp_path / "c.mdl"))
    reader.verify()
    whole = np.zeros(64, np.float32)
    whole[list(PACKED_PLACES)] = PACKED_VALUES
    assert reader.tensors["model.w"] == TensorSpec("model.w", (4, 16), "float32")
    assert reader.stored_bytes("model.w") == PACKED_VALUES.nbytes
    np.testing.assert_array_equal(reader["model.w"], whole.reshape(4, 16))
    np.testing.assert_array_equal(reader["model.b"], 2 * PACKED_VALUES)
    with raises(CheckpointError, "tensor-mismatch"):
        reader.read_into({"model.w": np.empty(3, np.float32)})


def test_file_states_another_format_to_old_programs(tmp_path: Path) -> None:
    """These look for the seal of format 1, and read the format where there is none."""
    path = packed_checkpoint(tmp_path / "c.mdl")
    assert path.read_bytes()[-8:] != b"wsc-seal"
    with io.FileIO(path) as file:
        manifest = read_seal(file)
    assert manifest is not None
    assert manifest.format == "2.0"
    with h5py.File(path) as plain:
        assert plain.attrs[FORMAT_ATTRIBUTE] == "2.0"
        assert json.loads(plain.attrs[SPEC_ATTRIBUTE])["model.w"] == ["float32", [3], [4, 16]]
        assert plain["model.w"].attrs["whole_shape"].tolist() == [4, 16]


def test_file_changed_by_another_program_is_sealed_again(tmp_path: Path) -> None:
    path = packed_checkpoint(tmp_path / "c.mdl")
    with h5py.File(path, "r+") as plain:
        plain["model.w"][0] = 9.0
    reseal(path)
    assert Reader(path)["model.w"].reshape(-1)[PACKED_PLACES[0]] == 9.0


def test_mask_of_another_number_of_values_is_refused(tmp_path: Path) -> None:
    reader = Reader(packed_checkpoint(tmp_path / "c.mdl", np.array([7, 7], np.int32)))
    with raises(CheckpointError, "tensor-damaged"):
        reader["model.w"]
    with pytest.raises(ValueError, match="leaves"):
        unpack_into(np.empty(64, np.float32), PACKED_VALUES, np.array([1, 0], np.int32))


@pytest.mark.parametrize("change", ["no mask", "short mask", "not flat"])
def test_packed_tensor_without_its_mask_is_refused(change: str, tmp_path: Path) -> None:
    with io.FileIO(packed_checkpoint(tmp_path / "c.mdl")) as file:
        manifest = read_seal(file)
    assert manifest is not None
    tensors = json.loads(manifest.model_dump_json())["tensors"]
    if change == "no mask":
        del tensors["sparsity.mask.w"]
    elif change == "short mask":
        tensors["sparsity.mask.w"]["shape"] = [1]
    else:
        tensors["model.w"]["shape"] = [3, 1]
    text = json.dumps({"format": "2.0", "writer": "1", "objects": {}, "tensors": tensors})
    with pytest.raises(SealError):
        parse_manifest(text.encode())


def test_mask_key_of_weights_and_their_states() -> None:
    assert mask_key("model.a.b") == "sparsity.mask.a.b"
    assert mask_key("optimizer.state.a.b.exp_avg") == "sparsity.mask.a.b"
    assert mask_key("sparsity.mask.a.b") is None
    assert mask_key("other") is None
