"""Sequences of tokens with images, from HDF5 files (modelzoo.data.images.columns).

data    (num_sequences, 5, T): rows text_input_ids, loss_mask, labels, key_padding_mask and
        token_modality_idx, which nothing reads and which may be left out
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from PIL import Image
from pydantic import AfterValidator, PositiveInt

from modelzoo.data.files.hdf5_file import Hdf5File, inspect_dataset
from modelzoo.data.images.classification import changed_image, load_image
from modelzoo.data.images.columns import ImageTable, inspect_columns
from modelzoo.data.images.transforms import Transform, checked_order
from modelzoo.data.language.hdf5 import UncutHDF5DataProcessor
from modelzoo.data.order import Draw, draws
from modelzoo.data.registry import register_processor
from modelzoo.data.source import (
    Batch,
    BatchSource,
    EarlierKey,
    OrderedBatches,
    RedrawnBatches,
    Samples,
)
from waferstream.core.errors import DataError

_TOKENS = ("text_input_ids", "loss_mask", "labels", "key_padding_mask")
_LAYOUTS = [(*_TOKENS, "token_modality_idx"), _TOKENS]
_NUMBER = "number"


@register_processor
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


@register_processor
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
