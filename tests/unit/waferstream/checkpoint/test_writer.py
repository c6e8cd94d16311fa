"""Servers append to one checkpoint file in turn; a failed write is a CheckpointError."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.errors import raises
from waferstream.checkpoint import MODEL, OPTIMIZER_STATE
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import (
    append_links,
    append_tensors,
    reserve_tensors,
    write_metadata,
)
from waferstream.core.errors import CheckpointError
from waferstream.core.program.program import TensorSpec


def test_checkpoint_is_hdf5_with_one_dataset_per_tensor(tmp_path: Path) -> None:
    """Any HDF5 tool finds the tensors under their dotted paths."""
    path = tmp_path / "c.mdl"
    append_tensors(path, MODEL, {"a.weight": np.ones((2, 3), np.float32)})
    append_tensors(path, OPTIMIZER_STATE, {"a.weight.exp_avg": np.zeros((2, 3), np.float32)})
    write_metadata(path, {"global_step": 3})
    with h5py.File(path) as file:
        assert sorted(file) == ["model.a.weight", "optimizer.state.a.weight.exp_avg"]
        assert file["model.a.weight"].dtype == np.float32
        assert {"__version__", "__waferstream_version__", "__spec__", "__objects__"} <= set(
            file.attrs
        )


def test_append_tensors_frees_unused_reserved_space(tmp_path: Path) -> None:
    """What was reserved beyond the tensors is given back: the file is about as big as they are."""
    path = tmp_path / "c.mdl"
    for server in range(3):
        append_tensors(path, "model", {f"w{server}": np.ones(250_000, np.float32)})
    write_metadata(path, {})
    assert 3_000_000 < path.stat().st_size < 3_050_000


def test_metadata_may_be_large(tmp_path: Path) -> None:
    """Thousands of keys and long objects do not hit HDF5's limit of 64 KiB per attribute."""
    path = tmp_path / "c.mdl"
    append_tensors(path, "model", {f"layers.{i}.weight": np.ones(1) for i in range(2000)})
    write_metadata(path, {"notes": "x" * 1_000_000})
    reader = Reader(path)
    assert len(reader.tensors) == 2000
    assert len(reader.objects["notes"]) == 1_000_000


def test_same_key_twice_is_refused(tmp_path: Path) -> None:
    """No two servers own the same parameter."""
    path = tmp_path / "c.mdl"
    append_tensors(path, "model", {"w": np.ones(1)})
    with raises(CheckpointError, "tensor-written-twice"):
        append_tensors(path, "model", {"w": np.ones(1)})


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_reserve_tensors_leaves_space_for_others(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    """Who has the values writes them at the offsets, without HDF5; scalars too."""
    path, array = tmp_path / "c.mdl", np.ones(shape, dtype)
    specs = [TensorSpec(f"model.{name}", shape, dtype) for name in ("a", "b/c", "ü")]
    offsets = reserve_tensors(path, specs)
    with path.open("r+b") as file:
        for offset in offsets.values():
            file.seek(offset)
            file.write(array.tobytes())
    write_metadata(path, {})
    with h5py.File(path) as file:
        found = [file[spec.name][()] for spec in specs]
    found += [Reader(path)[spec.name] for spec in specs]
    assert all(np.array_equal(item, array) and item.dtype == array.dtype for item in found)


def test_append_links_gives_a_tensor_two_names(tmp_path: Path) -> None:
    """The link may come before the tensor; the tensor is stored once."""
    path, array = tmp_path / "c.mdl", np.arange(100_000, dtype=np.float32)
    append_links(path, "model", {"tied": "own", "a/tied": "own"})
    append_tensors(path, "model", {"own": array})
    write_metadata(path, {})
    reader = Reader(path)
    assert set(reader.names("model")) == {"own", "tied", "a/tied"}
    for name in reader.names("model"):
        assert (reader[f"model.{name}"] == array).all()
    assert path.stat().st_size < 2 * array.nbytes


def test_state_that_is_not_json_is_refused(tmp_path: Path) -> None:
    """The error names the state."""
    path = tmp_path / "c.mdl"
    with raises(CheckpointError, "state-not-json") as error:
        write_metadata(path, {"global_step": 1, "dataloader": {"generator": object()}})
    assert "'dataloader'" in error.value.what
    assert not path.exists()


def test_full_disk_error_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC becomes a CheckpointError with a remedy."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with raises(CheckpointError, "checkpoint-not-writable") as error:
        append_tensors(tmp_path / "c.mdl", "model", {"w": np.ones(1)})
    assert error.value.value == os.strerror(errno.ENOSPC)
    assert error.value.remedy


SHORT_OF_SPACE = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from waferstream.checkpoint.writer import append_tensors
from waferstream.core.errors import CheckpointError
from waferstream.core.program.program import TensorSpec
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    append_tensors(Path(sys.argv[1]), "model", {"w": np.ones(1_000_000, np.float32)})
except CheckpointError as error:
    print(error.code, error.value, bool(error.remedy), sep=", ")
"""


@pytest.mark.parametrize("limit_bytes", [100, 3_000_000])
def test_process_survives_a_file_size_limit(tmp_path: Path, limit_bytes: int) -> None:
    """With a real limit on the file size the writer raises (HDF5 alone would abort)."""
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_SPACE, str(tmp_path / "c.mdl"), str(limit_bytes)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"checkpoint-not-writable, {os.strerror(errno.EFBIG)}, True\n"
