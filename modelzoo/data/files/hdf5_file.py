"""One HDF5 file of token sequences, in any of three layouts.

    sample    dataset ``data`` (num_sequences, 3, T): rows input_ids, attention_mask, labels;
              with packed documents (VSL) five rows, also attention_span and position_ids
    named     datasets ``input_ids``, ``attention_mask``, ``labels``, each (num_sequences, T)
    corpus    dataset ``data`` (num_tokens,): sequences are cut out when they are read

Files of masked language models have two datasets with a row for each feature, ``data`` and
``labels`` (modelzoo.data.bert.masked); and files of questions and passages
(modelzoo.data.language.dpr).

Integers of any width, compressed or not (Model Zoo 2.10, ``data/common/h5_map_dataset``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from waferstream.core.errors import DataError
from waferstream.core.extras import LazyPackage
from waferstream.core.units import MIB
from waferstream.preparation.sequences import FEATURES, PACKED_FEATURES

if TYPE_CHECKING:
    import h5py
else:
    h5py = LazyPackage("h5py", "train")

_DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, MemoryError)
"""What the HDF5 library raises on a damaged file."""
_MOST_COMPRESSION = 10_000  # deflate reaches 1032 (zlib, "Technical details": maximum 1032:1)
_LARGEST_EXTENT = 16 * MIB  # of a sequence: a hostile file can state any, and hold nothing
_TOKEN_RULE = f"either 'data' or all of {', '.join(FEATURES)}"
Layout = Literal["sample", "named", "corpus"]


@dataclass(frozen=True)
class Hdf5File:
    """A file with ``num_sequences`` of ``length`` tokens; it is open only during a read."""

    path: Path
    layout: Layout
    num_sequences: int
    length: int
    features: tuple[str, ...] = FEATURES
    dataset: str = "data"
    depth: int | None = None  # sequences of each feature; None: one, without a dimension

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of a feature of one sample."""
        return (self.length,) if self.depth is None else (self.depth, self.length)

    def read(self, rows: np.ndarray) -> np.ndarray:
        """Return samples as int64 (len(rows), features, *shape).

        Raises:
            DataError: The file is damaged.
        """
        sequences = np.empty((len(rows), len(self.features), *self.shape), dtype=np.int64)
        with opened(self.path) as file:
            for index, row in enumerate(rows):
                sequences[index] = self._read_one(file, int(row))
        return sequences

    def _read_one(self, file: h5py.File, row: int) -> np.ndarray:
        """Return one sequence as (features, length)."""
        if self.layout == "sample":
            return np.asarray(file[self.dataset][row])
        if self.layout == "named":
            return np.stack([file[feature][row] for feature in self.features])
        first = row * self.length
        window = file["data"][first : first + self.length + 1]
        return np.stack([window[:-1], np.ones_like(window[1:]), window[1:]])


def inspect(path: Path, max_sequence_length: int | None, use_vsl: bool = False) -> Hdf5File:
    """Determine the layout and size of a file.

    Args:
        path: The file.
        max_sequence_length: Length of the sequences that a corpus is cut into; for other layouts
            the length that the file has, or None.
        use_vsl: Whether the file must hold packed documents.

    Raises:
        DataError: The file cannot be read, or has none of the layouts.
    """
    features = PACKED_FEATURES if use_vsl else FEATURES
    with opened(path) as file:
        if "data" not in file:
            found = _inspect_named(path, file, features)
        elif use_vsl or len(shape_of_integers(path, file, "data")) != 1:
            found = _inspect_sample(path, file, features)
        else:
            return _inspect_corpus(path, file, max_sequence_length)
        declared = file.attrs.get("n_examples", found.num_sequences)
    if not np.array_equal(declared, found.num_sequences):
        raise DataError(
            "n_examples must be the number of sequences in the file",
            code="sequence-count-mismatch",
            where=str(path),
            value=f"{found.num_sequences}, attribute n_examples {declared}",
            rule="n_examples is the number of sequences",
            remedy="write the file again; it may be a partial copy",
        )
    if max_sequence_length not in {None, found.length}:
        raise DataError(
            "max_sequence_length must be that of the file",
            code="sequence-length-mismatch",
            where=str(path),
            value=f"{found.length}, max_sequence_length {max_sequence_length}",
            rule="only a corpus file can be cut to any length",
            remedy="remove max_sequence_length from the dataloader",
        )
    return found


def inspect_dataset(
    path: Path, dataset: str, layouts: Sequence[tuple[str, ...]], *, is_nested: bool = False
) -> Hdf5File:
    """Determine the size of a dataset that has a row for each feature of one of the layouts.

    Args:
        path: The file.
        dataset: Name in the file.
        layouts: Features of each layout.
        is_nested: Whether each feature has several sequences.

    Raises:
        DataError: The file cannot be read, or the dataset has none of the layouts.
    """
    with opened(path) as file:
        shape = shape_of_integers(path, file, dataset)
    features = next((each for each in layouts if shape[1:2] == (len(each),)), None)
    if len(shape) != 3 + is_nested or features is None:
        numbers = " or ".join(str(len(each)) for each in layouts)
        inner = "several, length" if is_nested else "length"
        raise _wrong_shape(path, dataset, shape, f"(num_sequences, {numbers}, {inner})")
    depth = shape[2] if is_nested else None
    return Hdf5File(path, "sample", shape[0], shape[-1], features, dataset, depth)


def _inspect_corpus(path: Path, file: h5py.File, max_sequence_length: int | None) -> Hdf5File:
    """Return a flat file of tokens as sequences of max_sequence_length."""
    (num_tokens,) = shape_of_integers(path, file, "data")
    if max_sequence_length is None:
        raise DataError(
            "a corpus file needs max_sequence_length",
            code="corpus-without-sequence-length",
            where=str(path),
            value=f"data of shape ({num_tokens},)",
            rule="a flat run of tokens is cut into sequences when it is read",
            remedy="set max_sequence_length in the dataloader",
        )
    num_sequences = max(0, num_tokens - 1) // max_sequence_length
    return Hdf5File(path, "corpus", num_sequences, max_sequence_length)


def _inspect_sample(path: Path, file: h5py.File, features: tuple[str, ...]) -> Hdf5File:
    """Return a file with one dataset that has a row for each feature."""
    shape = shape_of_integers(path, file, "data")
    if len(shape) != 3 or shape[1] != len(features):
        rule = f"(num_sequences, {len(features)}, max_sequence_length)"
        raise _wrong_shape(path, "data", shape, rule)
    return Hdf5File(path, "sample", shape[0], shape[2], features)


def _inspect_named(path: Path, file: h5py.File, features: tuple[str, ...]) -> Hdf5File:
    """Return a file with one dataset for each feature."""
    shapes = {name: shape_of_integers(path, file, name) for name in features}
    expected = shapes["input_ids"]
    for name, shape in shapes.items():
        if len(shape) != 2 or shape != expected:
            rule = "(num_sequences, max_sequence_length), the same for all"
            raise _wrong_shape(path, name, shape, rule)
    return Hdf5File(path, "named", expected[0], expected[1], features)


def shape_of_integers(path: Path, file: h5py.File, name: str) -> tuple[int, ...]:
    """Return the shape of an integer dataset; DataError if it is missing or not of integers."""
    dataset = own_dataset(path, file, name)
    if dataset.dtype.kind not in "iu":
        raise DataError(
            f"dataset {name!r} must hold integers",
            code="hdf5-dataset-not-integer",
            where=str(path),
            value=dataset.dtype,
            rule="token ids and masks are integers, usually int32",
        )
    shape = dataset.shape
    if shape is None or any(size > _LARGEST_EXTENT for size in shape[1:]):
        rule = f"sequences of at most {_LARGEST_EXTENT} tokens"
        raise _wrong_shape(path, name, shape or (), rule)
    return tuple(shape)


def own_dataset(path: Path, file: h5py.File, name: str, rule: str = _TOKEN_RULE) -> h5py.Dataset:
    """Return a dataset whose values are in the file itself.

    A link, a virtual dataset or external storage would read any other file of the user's.

    Raises:
        DataError: There is none, contrary to a rule, or its values are elsewhere or nowhere.
    """
    link = file.get(name, getlink=True) if name in file else None
    dataset = file[name] if isinstance(link, h5py.HardLink) else None
    if link is not None and dataset is None:
        raise _elsewhere(path, name, "a link")
    if not isinstance(dataset, h5py.Dataset):
        raise DataError(
            f"dataset {name!r} is missing",
            code="hdf5-dataset-missing",
            where=str(path),
            value=f"the file holds {', '.join(file) or 'nothing'}",
            rule=rule,
        )
    if dataset.is_virtual or dataset.external:
        raise _elsewhere(
            path, name, "a virtual dataset" if dataset.is_virtual else "external storage"
        )
    if dataset.nbytes > _MOST_COMPRESSION * max(dataset.id.get_storage_size(), 1):
        raise DataError(
            f"dataset {name!r} must hold the values that it states",
            code="hdf5-dataset-hollow",
            where=str(path),
            value=f"{dataset.nbytes} bytes in {dataset.id.get_storage_size()}",
            rule="its values were written, and not only its shape",
        )
    return dataset


def _elsewhere(path: Path, name: str, found: str) -> DataError:
    return DataError(
        f"dataset {name!r} must be in the file itself",
        code="hdf5-dataset-elsewhere",
        where=str(path),
        value=found,
        rule="a dataset reads no other file",
        remedy="copy the values into the file, as h5repack does",
    )


def _wrong_shape(path: Path, name: str, shape: tuple[int, ...], rule: str) -> DataError:
    return DataError(
        f"dataset {name!r} must have the shape of its layout",
        code="hdf5-dataset-wrong-shape",
        where=str(path),
        value=shape,
        rule=rule,
        remedy="set use_vsl for packed documents, and only for them",
    )


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """Open a file for reading; every error of the HDF5 library becomes a DataError."""
    try:
        with h5py.File(path, "r") as file:
            yield file
    except _DAMAGE as error:
        what, code = _complaint(path)
        raise DataError(
            what,
            code=code,
            where=str(path),
            value=error,
            rule="a complete HDF5 file that may be read",
            remedy="write or copy the file again",
        ) from error


def _complaint(path: Path) -> tuple[str, str]:
    """Return the text and code of the error for a file that cannot be opened or read."""
    if not path.is_file():
        return "the file no longer exists", "data-file-gone"
    if not h5py.is_hdf5(path):
        return "the file must be HDF5", "not-hdf5"
    return "the HDF5 file is truncated or damaged", "hdf5-damaged"
