"""The seal of a checkpoint file finds every flipped bit and every statement that cannot be true."""

import io
import json
import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from waferstream.checkpoint import MODEL
from waferstream.checkpoint.seal import SealError, check_extent, read_seal
from waferstream.checkpoint.writer import append_links, append_tensors, write_metadata

VALUES = np.arange(64, dtype=np.float32)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("seal") / "c.mdl"
    append_links(path, MODEL, {"tied": "w"})
    append_tensors(
        path, MODEL, {"w": VALUES, "empty": np.zeros(0, np.float32), "step": np.array(7)}
    )
    write_metadata(path, {"global_step": 7, "odd": [float("inf"), None]})
    return path


def is_good(path: Path) -> bool:
    with io.FileIO(path) as file:
        try:
            manifest = read_seal(file)
            if manifest is None:  # refused later, as the file says that it has a seal
                return False
            for extent in manifest.tensors.values():
                check_extent(file, extent)
        except SealError:
            return False
    return True


def test_every_flipped_bit_of_a_file_is_found(sealed: Path, tmp_path: Path) -> None:
    """Of tensors, of HDF5's own bytes, and of the seal itself; one bit of each byte."""
    whole, path = sealed.read_bytes(), tmp_path / "flipped.mdl"
    assert is_good(sealed)
    path.write_bytes(whole)
    with path.open("r+b", buffering=0) as file:
        for position, byte in enumerate(whole):
            file.seek(position)
            file.write(bytes([byte ^ (1 << position % 8)]))
            assert not is_good(path), f"byte {position} of {len(whole)}"
            file.seek(position)
            file.write(bytes([byte]))


def test_sealed_file_is_plain_hdf5(sealed: Path) -> None:
    """Other programs read the same values, and do not see the seal."""
    with h5py.File(sealed) as file:
        assert (file["model.tied"][()] == VALUES).all()
    with io.FileIO(sealed) as raw:
        manifest = read_seal(raw)
    assert manifest is not None
    assert manifest.tensors["model.w"].crc32 == zlib.crc32(VALUES.tobytes())
    assert manifest.tensors["model.tied"] == manifest.tensors["model.w"]
    assert manifest.objects == {"global_step": 7, "odd": [float("inf"), None]}


def forge(path: Path, target: Path, **tensor: object) -> None:
    """Write a copy whose seal says something else about a tensor, with the right checksums."""
    whole = path.read_bytes()
    own, _, size, length, magic = struct.unpack("<IIQQ8s", whole[-32:])
    manifest = json.loads(whole[size : size + length])
    manifest["tensors"]["model.step"].update(tensor)
    text = json.dumps(manifest).encode()
    head = struct.pack("<IQQ", own, size, len(text))
    tail = struct.pack("<IIQQ8s", own, zlib.crc32(head, zlib.crc32(text)), size, len(text), magic)
    target.write_bytes(whole[:size] + text + tail)


@pytest.mark.parametrize(
    "lie",
    [
        {"shape": [-1]},
        {"shape": [1.5]},
        {"shape": "12"},
        {"shape": [10**12]},
        {"shape": [10**30, 10**30]},
        {"dtype": "object"},
        {"dtype": ["int64"]},
        {"offset": -8},
        {"offset": 10**15},
        {"crc32": "0"},
        {"unknown": 1},
    ],
)
def test_impossible_statement_of_a_seal_is_refused(
    sealed: Path, tmp_path: Path, lie: dict[str, object]
) -> None:
    """A stranger can compute checksums, too."""
    forge(sealed, tmp_path / "forged.mdl", **lie)
    assert not is_good(tmp_path / "forged.mdl")
    forge(sealed, tmp_path / "same.mdl")
    assert is_good(tmp_path / "same.mdl")
