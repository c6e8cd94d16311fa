"""HDF5 files in all layouts give the same sequences; wrong or damaged files are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from modelzoo.data.files.hdf5_file import inspect
from tests.support.errors import raises
from waferstream.core.errors import DataError
from waferstream.preparation.sequences import FEATURES, PACKED_FEATURES

SAMPLES = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def write(path: Path, n_examples: int | None = None, **datasets: np.ndarray) -> Path:
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file.create_dataset(name, data=values, compression="gzip" if values.ndim else None)
        if n_examples is not None:
            file.attrs["n_examples"] = n_examples
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "output_chunk_0_0.h5"


def test_sample_layout(path: Path) -> None:
    """Three rows per sequence, read in any order, with repetition."""
    file = inspect(write(path, data=SAMPLES, n_examples=2), max_sequence_length=None)
    assert (file.layout, file.num_sequences, file.length) == ("sample", 2, 4)
    assert np.array_equal(file.read(np.array([1, 0, 1])), SAMPLES[[1, 0, 1]])


def test_named_layout(path: Path) -> None:
    """One dataset per feature gives the same sequences as the sample layout."""
    named: dict[str, Any] = {name: SAMPLES[:, row] for row, name in enumerate(FEATURES)}
    file = inspect(write(path, **named), max_sequence_length=4)
    assert (file.layout, file.num_sequences, file.length) == ("named", 2, 4)
    assert np.array_equal(file.read(np.array([1])), SAMPLES[[1]])


def test_corpus_layout(path: Path) -> None:
    """Flat tokens are cut to any length; labels are the next tokens, all unmasked."""
    file = inspect(write(path, data=np.arange(10, dtype=np.uint16)), max_sequence_length=4)
    assert (file.layout, file.num_sequences, file.length) == ("corpus", 2, 4)
    expected = [[[4, 5, 6, 7], [1, 1, 1, 1], [5, 6, 7, 8]]]
    assert file.read(np.array([1])).tolist() == expected


@pytest.mark.parametrize("is_named", [False, True])
def test_packed_layout(path: Path, is_named: bool) -> None:
    """Five rows per sequence, which ``use_vsl`` asks for."""
    packed = np.arange(40, dtype=np.int32).reshape(2, 5, 4)
    named: dict[str, Any] = {name: packed[:, row] for row, name in enumerate(PACKED_FEATURES)}
    file = inspect(write(path, **(named if is_named else {"data": packed})), None, use_vsl=True)
    assert file.features == PACKED_FEATURES
    assert np.array_equal(file.read(np.array([1])), packed[[1]])
    with raises(DataError, "hdf5-dataset-wrong-shape"):
        inspect(write(path, data=SAMPLES), None, use_vsl=True)
    with raises(DataError, "hdf5-dataset-wrong-shape"):
        inspect(write(path, data=np.arange(9)), 4, use_vsl=True)


@pytest.mark.parametrize(
    ("datasets", "code"),
    [
        ({}, "hdf5-dataset-missing"),
        ({"input_ids": SAMPLES[:, 0], "labels": SAMPLES[:, 2]}, "hdf5-dataset-missing"),
        ({"data/nested": SAMPLES}, "hdf5-dataset-missing"),
        ({"data": SAMPLES.astype(np.float32)}, "hdf5-dataset-not-integer"),
        ({"data": SAMPLES[0]}, "hdf5-dataset-wrong-shape"),
        ({"data": np.int32(7)}, "hdf5-dataset-wrong-shape"),
        ({"data": np.zeros((2, 5, 4), np.int32)}, "hdf5-dataset-wrong-shape"),
        (dict.fromkeys(FEATURES, SAMPLES), "hdf5-dataset-wrong-shape"),
        (
            dict.fromkeys(FEATURES, SAMPLES[:, 0]) | {"labels": SAMPLES[:, 0, :3]},
            "hdf5-dataset-wrong-shape",
        ),
        ({"data": SAMPLES, "n_examples": 3}, "sequence-count-mismatch"),
    ],
)
def test_inspect_refuses_a_wrong_layout(path: Path, datasets: dict[str, Any], code: str) -> None:
    """The error has the path, the value found, and the rule."""
    write(path, **datasets)
    with raises(DataError, code) as caught:
        inspect(path, max_sequence_length=None)
    assert caught.value.where == str(path)
    assert caught.value.value
    assert caught.value.rule


@pytest.mark.parametrize("length", [None, 5])
def test_max_sequence_length_applies_to_corpus_files(path: Path, length: int | None) -> None:
    """It is needed for a corpus, and cannot change sequences that are already cut."""
    write(path, data=SAMPLES if length else np.arange(10))
    code = "sequence-length-mismatch" if length else "corpus-without-sequence-length"
    with raises(DataError, code):
        inspect(path, length)


def test_inspect_refuses_a_file_that_is_not_hdf5(path: Path) -> None:
    """Text with the suffix of HDF5 is recognised."""
    path.write_text("hello")
    with raises(DataError, "not-hdf5") as caught:
        inspect(path, None)
    assert caught.value.where == str(path)


def test_inspect_refuses_a_truncated_file(path: Path) -> None:
    """Half a copy is refused when it is opened."""
    write(path, data=SAMPLES)
    path.write_bytes(path.read_bytes()[:-100])
    with raises(DataError, "hdf5-damaged"):
        inspect(path, None)


def test_read_refuses_a_damaged_chunk(path: Path) -> None:
    """Bytes that do not decompress are refused when they are read, not trained on."""
    file = inspect(write(path, data=SAMPLES), None)
    with h5py.File(path) as opened:
        chunk = opened["data"].id.get_chunk_info(0)
    raw = bytearray(path.read_bytes())
    raw[chunk.byte_offset : chunk.byte_offset + chunk.size] = b"\xff" * chunk.size
    path.write_bytes(raw)
    with raises(DataError, "hdf5-damaged"):
        file.read(np.array([0]))


def test_read_refuses_a_deleted_file(path: Path) -> None:
    """The error names the path of the data that was deleted during a run."""
    file = inspect(write(path, data=SAMPLES), None)
    path.unlink()
    with raises(DataError, "data-file-gone") as caught:
        file.read(np.array([0]))
    assert caught.value.where == str(path)


def linked(file: h5py.File) -> None:
    file["other"] = SAMPLES
    file["data"] = h5py.SoftLink("/other")


def linked_elsewhere(file: h5py.File) -> None:
    file["data"] = h5py.ExternalLink("secret.h5", "data")


def stored_elsewhere(file: h5py.File) -> None:
    shape, place = SAMPLES.shape, [("secret.bin", 0, SAMPLES.nbytes)]
    file.create_dataset("data", shape, "i4", external=place)


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(SAMPLES.shape, "i4")
    layout[:] = h5py.VirtualSource("secret.h5", "data", SAMPLES.shape)
    file.create_virtual_dataset("data", layout)


def hollow(file: h5py.File) -> None:
    file.create_dataset("data", (10**12, 3, 4), "i4", chunks=(1, 3, 4))


def long(file: h5py.File) -> None:
    file.create_dataset("data", (1, 3, 2**40), "i1", chunks=(1, 3, 4))[0, 0, :4] = 1


def without_space(file: h5py.File) -> None:
    file["data"] = h5py.Empty("i4")


def counted_oddly(file: h5py.File) -> None:
    file["data"] = SAMPLES
    file.attrs["n_examples"] = [2, 2]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (linked, "hdf5-dataset-elsewhere"),
        (linked_elsewhere, "hdf5-dataset-elsewhere"),
        (stored_elsewhere, "hdf5-dataset-elsewhere"),
        (virtual, "hdf5-dataset-elsewhere"),
        (hollow, "hdf5-dataset-hollow"),
        (long, "hdf5-dataset-hollow"),
        (without_space, "hdf5-dataset-wrong-shape"),
        (counted_oddly, "sequence-count-mismatch"),
    ],
)
def test_hostile_file_is_refused(path: Path, make: Callable[[h5py.File], None], code: str) -> None:
    """A file from a stranger reads no other file, and takes no more memory than it has values."""
    write(path.with_name("secret.h5"), data=SAMPLES)
    path.with_name("secret.bin").write_bytes(SAMPLES.tobytes())
    with h5py.File(path, "w") as file:
        make(file)
    with raises(DataError, code):
        inspect(path, max_sequence_length=None)
