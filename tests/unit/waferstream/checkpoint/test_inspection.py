"""Files without a seal are inspected elsewhere: no lie, link or hang of HDF5 gets further."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.errors import raises
from tests.support.files.checkpoint_files import unsealed
from waferstream.checkpoint import SPEC_ATTRIBUTE, inspection
from waferstream.checkpoint.inspection import inspect
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.core.errors import CheckpointError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint_7.mdl"
    append_tensors(path, "model", {"w": np.ones(3, np.float32)})
    write_metadata(path, {"global_step": 7})
    return path


def replace_by(value: object) -> Callable[[h5py.File], None]:
    """Return a change that puts another dataset in the place of the tensor."""

    def change(file: h5py.File) -> None:
        del file["model.w"]
        if isinstance(value, dict):
            file.create_dataset("model.w", **value)
        else:
            file["model.w"] = value

    return change


def in_spec(text: str) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        file.attrs[SPEC_ATTRIBUTE] = text

    return change


def virtual(file: h5py.File) -> None:
    del file["model.w"]
    layout = h5py.VirtualLayout((3,), np.float32)
    layout[:] = h5py.VirtualSource("other.h5", "x", (3,))
    file.create_virtual_dataset("model.w", layout)


LIES = {
    "missing": lambda file: file.__delitem__("model.w"),
    "integers": replace_by(np.ones(3, np.int64)),
    "one element": replace_by(np.ones(1, np.float32)),
    "other byte order": replace_by(np.ones(3, ">f4")),
    "group": lambda file: (file.__delitem__("model.w"), file.create_group("model.w")),
    "external link": replace_by(h5py.ExternalLink("other.h5", "/x")),
    "link to a link": lambda file: (
        file.__setitem__("b", h5py.SoftLink("/c")),
        file.__setitem__("c", h5py.ExternalLink("other.h5", "/x")),
        replace_by(h5py.SoftLink("/b"))(file),
    ),
    "external storage": replace_by(
        {"shape": (3,), "dtype": np.float32, "external": [("/etc/passwd", 0, 12)]}
    ),
    "virtual": virtual,
    "chunked": replace_by({"data": np.ones(3, np.float32), "chunks": (2,)}),
    "no data": replace_by({"shape": (3,), "dtype": np.float32}),
    "half a JSON": in_spec("{"),
    "number for a tensor": in_spec('{"model.w": 3}'),
    "string shape": in_spec('{"model.w": ["float32", "333"]}'),
    "negative shape": in_spec('{"model.w": ["float32", [-3]]}'),
    "huge shape": in_spec('{"model.w": ["float32", [1000000000000]]}'),
    "unknown dtype": in_spec('{"model.w": ["flat32", [3]]}'),
    "list of tensors": in_spec('["model.w"]'),
    "deep JSON": in_spec("[" * 100_000),
}


@pytest.mark.parametrize("lie", LIES)
def test_misleading_structure_is_refused(path: Path, lie: str) -> None:
    """Nothing is cast, repeated, or read from another file."""
    with raises(CheckpointError, "checkpoint-damaged") as error:
        inspection._inspect_here(unsealed(path, LIES[lie]))
    assert error.value.where == str(path)


def test_inspect_returns_errors_and_manifests_of_its_process(path: Path) -> None:
    """What is found there arrives here, whole."""
    with raises(CheckpointError, "checkpoint-damaged") as lost:
        with h5py.File(path, "r+"):
            pass
        inspect(path)
    assert lost.value.remedy is not None
    assert inspect(unsealed(path)) == inspection._inspect_here(path)
    with h5py.File(path, "r+") as file:
        del file.attrs[SPEC_ATTRIBUTE]
    with raises(CheckpointError, "checkpoint-incomplete"):
        inspect(path)


def test_other_format_is_refused(path: Path) -> None:
    """A file of a later format is not read."""
    with h5py.File(path, "r+") as file:
        file.attrs["__version__"] = "3.0"
    with raises(CheckpointError, "checkpoint-of-other-format"):
        inspection._inspect_here(path)


@pytest.mark.parametrize(
    ("program", "deadline_s"), [("while True: pass", 0.2), ("import os; os.abort()", 60.0)]
)
def test_hang_or_crash_of_hdf5_is_an_error(
    path: Path, monkeypatch: pytest.MonkeyPatch, program: str, deadline_s: float
) -> None:
    """Its process ends at the deadline, or by itself; this one goes on."""
    run = subprocess.run

    def other(_command: object, **options: object) -> object:
        return run([sys.executable, "-c", program], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", other)
    monkeypatch.setattr(inspection, "_DEADLINE_S", deadline_s)
    with raises(CheckpointError, "checkpoint-damaged"):
        inspect(path)
