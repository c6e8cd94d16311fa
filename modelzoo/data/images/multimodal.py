"""Sequences of tokens with images, from HDF5 files.

data            (num_sequences, 5, T): rows text_input_ids, loss_mask, labels, key_padding_mask and
                token_modality_idx, which nothing reads and which may be left out
img_path        (num_sequences, I): names of images below a folder; ``None`` for no image
img_data_loc    (num_sequences, I, P): place of each of P vectors of an image in the sequence; the
                length of the sequence for those of no image
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
import torch
from PIL import Image
from pydantic import AfterValidator, PositiveInt

from modelzoo.data.files.hdf5_file import (
    Hdf5File,
    inspect_dataset,
    opened,
    own_dataset,
    shape_of_integers,
)
from modelzoo.data.images.classification import changed_image, load_image
from modelzoo.data.images.transforms import Transform, checked_order
from modelzoo.data.language.hdf5 import UncutHDF5DataProcessor
from modelzoo.data.order import Draw, draws
from modelzoo.data.source import (
    EarlierKey,
    OrderedBatches,
    RedrawnBatches,
    Samples,
    located,
    starts_of_parts,
)
from waferstream.core.errors import DataError
from waferstream.core.extras import LazyPackage
from waferstream.workload.data import Batch, BatchSource

if TYPE_CHECKING:
    import h5py
else:
    h5py = LazyPackage("h5py", "train")

_TOKENS = ("text_input_ids", "loss_mask", "labels", "key_padding_mask")
_LAYOUTS = [(*_TOKENS, "token_modality_idx"), _TOKENS]
_NUMBER = "number"


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


class LlavaHDF5MapDataProcessor(UncutHDF5DataProcessor):
    """Sequences with an image each, at the place that the model states."""

    has_places: ClassVar[bool] = False
    """Whether files state the places of images, of which a sequence may then have several."""

    img_data_dir: str
    """Folder of the images that the files name."""
    image_data_size: tuple[Literal[3], PositiveInt, PositiveInt]
    """Channels, height and width of an image after ``transforms``."""
    transforms: Annotated[tuple[Transform, ...], AfterValidator(checked_order)]
    """Changes to every image, in order."""

    use_vsl: Literal[False] = False
    """Must be false: sequences with images are not packed."""

    def opened(self, parts: Sequence[Sequence[Path]]) -> list[Samples]:
        datasets = self.joined([_inspected(paths) for paths in parts])
        firsts = accumulate(map(len, datasets[:-1]), initial=0)
        return [NumberedSamples(*each) for each in zip(datasets, firsts, strict=True)]

    def source(self) -> BatchSource:
        files = _inspected(list(chain.from_iterable(self.paths())))
        table = ImageTable([inspect_columns(each, with_places=self.has_places) for each in files])
        return ImageTextBatches(self.ordered(), table, self)


class MultimodalSimpleHDF5MapDataProcessor(LlavaHDF5MapDataProcessor):
    """Sequences with images at any places, which the files state."""

    has_places: ClassVar[bool] = True

    max_num_img: PositiveInt = 1
    """Images of a sequence, as the files have them; those that it lacks are black."""
    num_patches: PositiveInt | None = None
    """No effect: the files state a place for each vector of an image."""

    noaugment: EarlierKey = None
    micro_batch_size: EarlierKey = None

    def source(self) -> BatchSource:
        found = super().source()
        assert isinstance(found, ImageTextBatches), "as the base makes it"
        if found.num_images != self.max_num_img:
            raise DataError(
                "the files must have max_num_img images for each sequence",
                code="image-count-mismatch",
                where=", ".join(chain.from_iterable(entry.patterns for entry in self.entries)),
                value=f"{found.num_images}, max_num_img {self.max_num_img}",
                remedy="set max_num_img to that of the files",
            )
        return found


class NumberedSamples:
    """Sequences of a dataset, with their numbers among those of all datasets."""

    def __init__(self, tokens: Samples, first: int) -> None:
        self.name = tokens.name
        self._tokens, self._first = tokens, first

    def __len__(self) -> int:
        return len(self._tokens)

    def read(self, indices: np.ndarray) -> Batch:
        batch = self._tokens.read(indices)
        numbers = torch.from_numpy(indices + self._first)
        return {**{name: batch[name] for name in _TOKENS}, _NUMBER: numbers}


class ImageTextBatches(RedrawnBatches):
    """Batches of sequences with images, which are changed anew in each epoch.

    Images are fp32 (batch, 3, height, width), or (batch, images, 3, height, width) with places.
    """

    def __init__(
        self, ordered: OrderedBatches, table: ImageTable, config: LlavaHDF5MapDataProcessor
    ) -> None:
        super().__init__(ordered)
        self._table, self._config = table, config
        self._folder = Path(config.img_data_dir).expanduser()
        self.num_images = table.num_images if config.has_places else 1

    def batch(self, step: int) -> Batch:
        batch = self.ordered.batch(step)
        numbers = batch.pop(_NUMBER).numpy()
        places = self.ordered.places(step).tolist()
        samples = [
            self._images(names, draws(self._config.shuffle_seed, "image", place))
            for names, place in zip(self._table.names(numbers), places, strict=True)
        ]
        images = torch.stack(samples)
        if not self._config.has_places:
            return {"image_data": images[:, 0].contiguous(), **batch}
        loc = torch.from_numpy(self._table.places(numbers))
        return {"image_data": images, "image_data_loc": loc, **batch}

    def _images(self, names: Sequence[str | None], draw: Draw) -> torch.Tensor:
        """Return the images of a sequence, (images, 3, height, width)."""
        return torch.stack([self._image(name, draw) for name in names[: self.num_images]])

    def _image(self, name: str | None, draw: Draw) -> torch.Tensor:
        """Return an image, or a changed black one for no name."""
        _, height, width = self._config.image_data_size
        path = self._folder / (name or "")
        image = Image.new("RGB", (width, height)) if name is None else load_image(path)
        changed = changed_image(image, self._config.transforms, draw, str(path))
        if changed.shape != self._config.image_data_size:
            raise DataError(
                "images must have image_data_size after their transforms",
                code="image-size-mismatch",
                where=str(path),
                value=tuple(changed.shape),
                rule=f"image_data_size {self._config.image_data_size}",
                remedy="change the transforms or image_data_size",
            )
        return changed


def _inspected(paths: Sequence[Path]) -> list[Hdf5File]:
    return [inspect_dataset(path, "data", _LAYOUTS) for path in paths]
