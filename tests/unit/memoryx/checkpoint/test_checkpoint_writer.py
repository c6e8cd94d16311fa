"""Servers append to one file in turn; what cannot be written is a CheckpointError, not a crash."""

import errno
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from memoryx.checkpoint import (
    MODEL,
    OPTIMIZER_STATE,
    Reader,
    append_tensors,
    write_metadata,
)
from wsc.core.errors import CheckpointError


def test_the_file_is_plain_hdf5_with_one_dataset_per_tensor(tmp_path):
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


def test_space_is_reserved_but_not_kept(tmp_path):
    """What was reserved beyond the tensors is given back: the file is about as big as they are."""
    path = tmp_path / "c.mdl"
    for server in range(3):
        append_tensors(path, "model", {f"w{server}": np.ones(250_000, np.float32)})
    write_metadata(path, {})
    assert 3_000_000 < path.stat().st_size < 3_050_000


def test_metadata_may_be_large(tmp_path):
    """Thousands of keys and long objects do not hit HDF5's limit of 64 KiB per attribute."""
    path = tmp_path / "c.mdl"
    append_tensors(path, "model", {f"layers.{i}.weight": np.ones(1) for i in range(2000)})
    write_metadata(path, {"notes": "x" * 1_000_000})
    reader = Reader(path)
    assert len(reader.tensors) == 2000
    assert len(reader.objects["notes"]) == 1_000_000


def test_the_same_key_twice_is_refused(tmp_path):
    """Two servers that both write a parameter are a mistake of sram_plan."""
    path = tmp_path / "c.mdl"
    append_tensors(path, "model", {"w": np.ones(1)})
    with pytest.raises(CheckpointError, match=r"'model.w' is written twice"):
        append_tensors(path, "model", {"w": np.ones(1)})


def test_an_object_that_is_not_json_is_refused(tmp_path):
    """The error names the state."""
    path = tmp_path / "c.mdl"
    with pytest.raises(CheckpointError, match="state 'dataloader'"):
        write_metadata(path, {"global_step": 1, "dataloader": {"generator": object()}})
    assert not path.exists()


def test_a_full_disk_says_what_to_do(tmp_path, monkeypatch):
    """ENOSPC becomes a CheckpointError with a remedy."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CheckpointError, match="No space left") as error:
        append_tensors(tmp_path / "c.mdl", "model", {"w": np.ones(1)})
    assert "free space" in str(error.value)


SHORT_OF_SPACE = """
import resource, signal, sys
from pathlib import Path
import numpy as np
from memoryx.checkpoint import append_tensors
from wsc.core.errors import CheckpointError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    append_tensors(Path(sys.argv[1]), "model", {"w": np.ones(1_000_000, np.float32)})
except CheckpointError as error:
    print(error)
"""


@pytest.mark.parametrize("limit_bytes", [100, 3_000_000])
def test_a_process_survives_when_space_really_ends(tmp_path, limit_bytes):
    """With a real limit on the file size the writer reports and lives (HDF5 alone would die)."""
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_SPACE, str(tmp_path / "c.mdl"), str(limit_bytes)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "File too large" in done.stdout
    assert "remedy" in done.stdout
