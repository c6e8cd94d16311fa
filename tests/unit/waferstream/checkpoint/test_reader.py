"""Checkpoint files are read lazily, bit for bit, and damaged or foreign files are refused."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tests.support.errors import raises
from tests.support.files.checkpoint_files import flip_in, unsealed
from waferstream.checkpoint import reader as reader_module
from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import append_tensors, write_metadata
from waferstream.core.errors import CheckpointError

OBJECTS = {"global_step": 7, "schedulers": [{"last_epoch": 7}], "seed": 2**40}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint_7.mdl"
    append_tensors(path, "model", {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3)})
    append_tensors(path, "optimizer.state", {"a.weight.exp_avg": np.ones((2, 3), np.float32)})
    write_metadata(path, OBJECTS)
    return path


@given(
    tensors=st.dictionaries(
        st.text("abc._/0", min_size=1, max_size=8).filter(
            lambda name: "/" not in (name[0], name[-1]) and "//" not in name and "." not in name
        ),
        npst.arrays(
            st.sampled_from([np.float32, np.float16, np.int64, np.bool_]),
            npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=4,
    )
)
def test_reader_returns_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, np.ndarray]
) -> None:
    """Any names, shapes (scalars and empty ones too) and dtypes survive bit for bit."""
    names = list(tensors)
    if any(one != other and other.startswith(one + "/") for one in names for other in names):
        return  # a dataset cannot be a folder as well
    path = tmp_path_factory.mktemp("round_trip") / "c.mdl"
    append_tensors(path, "model", tensors)
    write_metadata(path, OBJECTS)
    reader = Reader(path)
    assert reader.objects == OBJECTS
    assert sorted(reader.names("model")) == sorted(tensors)
    for name, array in tensors.items():
        found = reader[f"model.{name}"]
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tobytes() == array.tobytes()


def test_opening_a_checkpoint_reads_no_tensor(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, shapes and objects are known before any dataset is touched."""

    def touched(*_: object) -> None:
        raise AssertionError("a tensor was read")

    monkeypatch.setattr(reader_module, "read_extent", touched)
    reader = Reader(path)
    assert reader.names("model") == ("a.weight",)
    assert reader.tensors["model.a.weight"].shape == (2, 3)
    with pytest.raises(AssertionError):
        reader["model.a.weight"]


def test_read_into_fills_arrays_in_place(path: Path) -> None:
    """Masters are filled without a copy, views of a flat buffer too."""
    flat = np.full(8, 9.0, np.float32)
    Reader(path).read_into({"model.a.weight": flat[1:7].reshape(2, 3)})
    assert flat.tolist() == [9, 0, 1, 2, 3, 4, 5, 9]


def test_reader_can_be_pickled(path: Path) -> None:
    """Weight servers get a pickled reader and read their own tensors."""
    reader = pickle.loads(pickle.dumps(Reader(path)))
    assert reader["model.a.weight"][1, 2] == 5


def test_changed_checkpoint_is_not_read(path: Path) -> None:
    """Written to, replaced or deleted after opening: each is refused."""
    reader = Reader(path)
    append_tensors(path, "model", {"b": np.ones(1)})
    with raises(CheckpointError, "checkpoint-changed"):
        reader["model.a.weight"]
    path.unlink()
    with raises(CheckpointError, "checkpoint-not-readable"):
        reader["model.a.weight"]


def test_truncated_checkpoint_is_refused(path: Path) -> None:
    """A file cut off anywhere is refused when it is opened."""
    whole = path.read_bytes()
    for size in (0, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with raises(CheckpointError, "checkpoint-damaged") as error:
            Reader(path)
        assert error.value.where == str(path)


def test_file_of_another_kind_is_refused(path: Path) -> None:
    """Text and a folder are not checkpoints."""
    path.write_text("model: 1\n")
    with raises(CheckpointError, "checkpoint-damaged"):
        Reader(path)
    with raises(CheckpointError, "checkpoint-damaged"):
        Reader(path.parent)


def test_checkpoint_of_an_earlier_format_is_read(path: Path) -> None:
    """Without checksums, and without any loss of what was there."""
    reader = Reader(unsealed(path))
    assert not reader.has_checksums
    assert (reader.objects, reader["model.a.weight"][1, 2]) == (OBJECTS, 5)
    reader.verify()


def test_missing_key_names_the_nearest_key(path: Path) -> None:
    """The error names file, key, and what was probably meant."""
    with raises(CheckpointError, "no-such-tensor") as error:
        Reader(path)["model.a.wieght"]
    assert error.value.remedy == "did you mean 'model.a.weight'?"


@pytest.mark.parametrize("expected", [np.empty((3, 2), np.float32), np.empty((2, 3), np.float16)])
def test_other_shape_or_dtype_is_refused(path: Path, expected: np.ndarray) -> None:
    """The error names the key, what was found and what was expected; nothing is read."""
    with raises(CheckpointError, "tensor-mismatch") as error:
        Reader(path).read_into({"model.a.weight": expected})
    assert str(error.value.value).startswith("found float32 (2, 3), expected float")


def test_require_version_compares_major_and_minor(path: Path) -> None:
    """strict_version accepts another patch release and refuses another minor one."""
    reader = Reader(path)
    reader.require_version()
    major, minor, *_ = reader.writer_version.split(".")
    reader.writer_version = f"{major}.{minor}.99"
    reader.require_version()
    reader.writer_version = f"{major}.{int(minor) + 1}.0"
    with raises(CheckpointError, "checkpoint-of-other-version"):
        reader.require_version()


def test_flipped_bit_of_a_tensor_is_found_and_named(path: Path) -> None:
    """It is found when the tensor is read or verified; opening reads no tensor."""
    flip_in(path, np.arange(6, dtype=np.float32).tobytes())
    reader = Reader(path)
    assert reader["optimizer.state.a.weight.exp_avg"].all()
    for read in (reader.verify, lambda: reader["model.a.weight"]):
        with raises(CheckpointError, "tensor-damaged") as error:
            read()
        assert "'model.a.weight'" in error.value.what
        assert error.value.where == str(path)


def test_wrong_boolean_is_refused(tmp_path: Path) -> None:
    """A boolean of 2 has a checksum, too, if a stranger made the file."""
    path = tmp_path / "c.mdl"
    append_tensors(path, "model", {"mask": np.array([0, 2, 1], np.uint8).view(np.bool_)})
    write_metadata(path, {})
    with raises(CheckpointError, "tensor-damaged"):
        Reader(path)["model.mask"]


def test_fifo_does_not_block_the_reader(tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer forever."""
    os.mkfifo(tmp_path / "c.mdl")
    with raises(CheckpointError, "checkpoint-damaged"):
        Reader(tmp_path / "c.mdl")
