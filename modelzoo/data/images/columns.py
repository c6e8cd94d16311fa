"""Which images belong to the sequences of an HDF5 file, and where in a sequence they are read.

img_path        (num_sequences, I): names of images below a folder; ``None`` for no image
img_data_loc    (num_sequences, I, P): place of each of P vectors of an image in the sequence; the
                length of the sequence for those of no image
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import h5py
import numpy as np

from modelzoo.data.files.hdf5_file import Hdf5File, opened, own_dataset, shape_of_integers
from modelzoo.data.source import located, starts_of_parts
from waferstream.core.errors import DataError

_NAMES, _PLACES = "img_path", "img_data_loc"
_NO_IMAGE = "None"
_LONGEST_NAME = 4096  # bytes, as Linux has it (PATH_MAX, limits.h)
_RULE = "sequences with images have a dataset 'img_path', and 'img_data_loc' for any places"


@dataclass(frozen=True)
class ImageColumns:
    """The columns of a file; it is open only during a read."""

    path: Path
    num_sequences: int
    num_images: int
    """Names of each sequence."""
    num_vectors: int | None
    """Vectors of each image that have places; None if places are not read."""

    def names(self, row: int) -> list[str | None]:
        """Return the names of the images of a sequence, None for no image.

        Raises:
            DataError: The file is damaged, or a name leads out of the folder of images.
        """
        with opened(self.path) as file:
            names = [_text(name) for name in np.atleast_1d(file[_NAMES][row])]
        outside = [name for name in names if name is not None and _leads_out(name)]
        if outside:
            raise DataError(
                "the name of an image must stay in its folder",
                code="image-name-outside",
                where=f"{self.path}, sequence {row}",
                value=outside[0][:200],
                rule="a name below img_data_dir, without '..'",
            )
        return names

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the places of all vectors, int64 (len(rows), I, P)."""
        with opened(self.path) as file:
            return np.stack([file[_PLACES][row] for row in rows]).astype(np.int64)


def inspect_columns(file: Hdf5File, *, with_places: bool) -> ImageColumns:
    """Determine the columns of a file of sequences.

    Raises:
        DataError: The file cannot be read, or lacks a column.
    """
    with opened(file.path) as content:
        names = own_dataset(file.path, content, _NAMES, _RULE)
        if names.ndim != 2 or len(names) != file.num_sequences or not names.shape[1]:
            raise _wrong(file.path, _NAMES, names.shape, f"({file.num_sequences}, images)")
        if h5py.check_string_dtype(names.dtype) is None or names.dtype.itemsize > _LONGEST_NAME:
            raise _wrong(file.path, _NAMES, names.dtype, f"text of at most {_LONGEST_NAME} bytes")
        num_images, vectors = names.shape[1], None
        if with_places:
            own_dataset(file.path, content, _PLACES, _RULE)
            shape = shape_of_integers(file.path, content, _PLACES)
            if len(shape) != 3 or shape[:2] != (file.num_sequences, num_images):
                rule = f"({file.num_sequences}, {num_images}, vectors of an image)"
                raise _wrong(file.path, _PLACES, shape, rule)
            vectors = shape[2]
    return ImageColumns(file.path, file.num_sequences, num_images, vectors)


class ImageTable:
    """The columns of several files, one after the other, by the number of a sequence."""

    def __init__(self, columns: Sequence[ImageColumns]) -> None:
        self._columns = columns
        self._starts = starts_of_parts([each.num_sequences for each in columns])
        self.num_images = columns[0].num_images
        for other in columns[1:]:
            if (other.num_images, other.num_vectors) != (self.num_images, columns[0].num_vectors):
                raise DataError(
                    "all files must have as many images for a sequence",
                    code="image-columns-differ",
                    where=f"{columns[0].path}, {other.path}",
                    value=f"{self.num_images} and {other.num_images} images",
                    rule="one number of images and of their vectors per dataset",
                )

    def names(self, numbers: np.ndarray) -> Iterator[list[str | None]]:
        """Yield the names of the images of each sequence."""
        for part, row in zip(*located(self._starts, numbers), strict=True):
            yield self._columns[part].names(int(row))

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Return the places of all vectors, int64 (len(numbers), I, P)."""
        parts, rows = located(self._starts, numbers)
        vectors = self._columns[0].num_vectors
        assert vectors is not None, "read where places are"
        found = np.empty((len(numbers), self.num_images, vectors), dtype=np.int64)
        for part in np.unique(parts):
            inside = parts == part
            found[inside] = self._columns[part].places(rows[inside])
        return found


def _leads_out(name: str) -> bool:
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts


def _text(name: object) -> str | None:
    """Return a name that a file has as bytes; ValueError if it is no text."""
    text = name.decode("utf-8") if isinstance(name, bytes) else str(name)
    return None if text == _NO_IMAGE else text


def _wrong(path: Path, name: str, value: object, rule: str) -> DataError:
    return DataError(
        f"dataset {name!r} must have the form of its column",
        code="image-column-wrong",
        where=str(path),
        value=value,
        rule=rule,
        remedy="prepare the data again",
    )
