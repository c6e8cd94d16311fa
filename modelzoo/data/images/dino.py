"""Crops of images and masks of their patches, for encoders that learn without labels.

Several random crops of every image, each changed on its own: Caron et al. 2020, multi-crop. Masks
of patches in blocks: Bao et al. 2022, BEiT, algorithm 1; Zhou et al. 2022, iBOT.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log, sqrt
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, Self

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt, TypeAdapter, model_validator

from modelzoo.data.files.folders import labelled_files
from modelzoo.data.images.classification import SUFFIXES, ImageFiles
from modelzoo.data.images.transforms import (
    Interpolation,
    RandomResizedCrop,
    Size,
    Transform,
    checked_order,
    transformed,
)
from modelzoo.data.order import draws
from modelzoo.data.source import OrderedBatches, RedrawnBatches
from waferstream.core.config import Config, before
from waferstream.core.rng import stream_key
from waferstream.workload.data import Batch, BatchSource, DataProcessor


class ImageFolder(Config):
    """Images in folders of ImageNet's layout: ``ROOT/SPLIT/CLASS/*.JPEG``."""

    name: Literal["Imagenet"]
    root: str
    split: Literal["train", "val"] = "train"


_TRANSFORMS = TypeAdapter(tuple[Transform, ...])

Scale = tuple[PositiveFloat, PositiveFloat]


class MultiCrop(Config):
    """Large and small crops of an image, and further changes to each."""

    name: Literal["ImageRandomMultiCropTransform"] = "ImageRandomMultiCropTransform"
    global_num_crops: PositiveInt
    local_num_crops: PositiveInt
    global_image_size: PositiveInt
    """Height and width of large crops."""
    local_image_size: PositiveInt
    """Height and width of small crops."""
    global_crops_scale: Scale
    """Least and largest share of the image in a large crop."""
    local_crops_scale: Scale
    """Least and largest share of the image in a small crop."""
    interpolation_type: Interpolation = "bicubic"
    multicrop_transform_list: tuple[dict[str, Any], ...] = Field(min_length=1)
    """Changes to every crop, in order. A list with an entry for each crop, the large ones first,
    states an argument of each."""

    @property
    def num_crops(self) -> int:
        """All crops of an image."""
        return self.global_num_crops + self.local_num_crops

    @model_validator(mode="after")
    def _changes_are_known(self) -> Self:
        for crop in range(self.num_crops):
            checked_order(self.changes(crop))
        return self

    def changes(self, crop: int) -> tuple[Transform, ...]:
        """Return the changes that make a crop, counted from 0, of an image."""
        is_large = crop < self.global_num_crops
        size = self.global_image_size if is_large else self.local_image_size
        cut = RandomResizedCrop(
            name="random_resized_crop",
            size=size,
            scale=self.global_crops_scale if is_large else self.local_crops_scale,
            interpolation=self.interpolation_type,
        )
        own = [self._of_crop(section, crop) for section in self.multicrop_transform_list]
        return (cut, *_TRANSFORMS.validate_python(own))

    def _of_crop(self, section: Mapping[str, Any], crop: int) -> dict[str, Any]:
        """Return the arguments of a change for one crop."""
        return {
            key: value[crop]
            if isinstance(value, list | tuple) and len(value) == self.num_crops
            else value
            for key, value in section.items()
        }


_ATTEMPTS = 10
"""Blocks that are drawn before a mask is left as it is (DINOv2, masking.py)."""


def _square(value: object) -> object:
    return (value, value) if isinstance(value, int) else value


Sides = Annotated[Size, before(_square, Size | PositiveInt)]
"""Height and width; one number is both."""


class PatchMasks(Config):
    """Which patches of the images of a batch are hidden.

    Of all images a share, rounded down, is masked. The range of shares of hidden patches is divided
    evenly among them: masked image i draws its share from part i. Images are in random order.
    """

    name: Literal["MaskedPatchTransform"] = "MaskedPatchTransform"
    image_size: Sides
    patch_size: Sides
    mask_probability: float = Field(ge=0, le=1)
    """Share of images with a mask; a block is also at most this share of an image."""
    mask_ratio_tuple: tuple[float, float]
    """Least and largest share of hidden patches in a masked image."""
    min_num_patches: PositiveInt = 4
    """Least area of a block that is drawn."""
    min_aspect: PositiveFloat = 0.3
    max_aspect: PositiveFloat | None = None
    """Ratios of height to width of a block; by default up to 1 / ``min_aspect``."""
    composed_transform: bool = False
    """No effect: crops are made by ``multi_crop_transform``."""

    @model_validator(mode="after")
    def _ratios_are_ordered(self) -> Self:
        low, high = self.mask_ratio_tuple
        if not 0 <= low <= high <= 1:
            raise ValueError("mask_ratio_tuple must be two shares, the smaller first")
        return self

    @property
    def grid(self) -> Size:
        """Patches down and across."""
        (height, width), (down, across) = self.image_size, self.patch_size
        return height // down, width // across

    def draw(self, num_images: int, random: Random) -> np.ndarray:
        """Return masks of the images of a batch, int64 (images, patches), 1 for hidden patches."""
        rows, columns = self.grid
        num_masked = int(num_images * self.mask_probability)
        bounds = np.linspace(*self.mask_ratio_tuple, num_masked + 1)
        masks = np.zeros((num_images, rows, columns), dtype=np.int64)
        for mask, low, high in zip(masks, bounds, bounds[1:], strict=False):
            self._hide(mask, int(rows * columns * random.uniform(low, high)), random)
        order = list(range(num_images))
        random.shuffle(order)
        return masks[order].reshape(num_images, -1)

    def _hide(self, mask: np.ndarray, wanted: int, random: Random) -> None:
        """Add blocks to a mask until enough patches are hidden, or no block fits."""
        hidden, most = 0, self.mask_probability * mask.size
        while hidden < wanted:
            added = self._add_block(mask, min(wanted - hidden, most), random)
            if not added:
                return
            hidden += added

    def _add_block(self, mask: np.ndarray, most: float, random: Random) -> int:
        """Hide a block of at most ``most`` new patches; return their number, 0 if none fits."""
        rows, columns = mask.shape
        aspects = log(self.min_aspect), log(self.max_aspect or 1 / self.min_aspect)
        for _ in range(_ATTEMPTS):
            area, aspect = random.uniform(self.min_num_patches, most), exp(random.uniform(*aspects))
            height, width = round(sqrt(area * aspect)), round(sqrt(area / aspect))
            if height >= rows or width >= columns:
                continue
            top, left = random.randint(0, rows - height), random.randint(0, columns - width)
            block = mask[top : top + height, left : left + width]
            added = height * width - int(block.sum())
            if 0 < added <= most:
                block[:] = 1
                return added
        return 0


class Dinov2Transform(Config):
    """What a model of DINOv2 reads of an image (Oquab et al. 2023)."""

    name: Literal["Dinov2Transform"]
    multi_crop_transform: MultiCrop
    masked_patch_transform: PatchMasks

    @model_validator(mode="after")
    def _masks_fit_crops(self) -> Self:
        size = self.multi_crop_transform.global_image_size
        if self.masked_patch_transform.image_size != (size, size):
            raise ValueError(f"masked_patch_transform.image_size must be that of crops, {size}")
        return self


class DinoImageDataProcessor(DataProcessor):
    """Crops of images; every epoch has other ones.

    Masks are drawn for the global batch, so that they do not depend on the systems.
    """

    dataset: ImageFolder
    ssl_transform: Dinov2Transform
    shuffle: bool = True
    num_samples: PositiveInt | None = None
    """Samples of an epoch; by default every image once."""

    drop_last: Literal[True] = True
    """Every batch is whole: samples left over at the end of an epoch start the next one."""
    pad_last: Any = False
    """No effect: every batch is whole."""
    prefetch_factor: int | None = 10
    """For the processes of the real machine's input workers; no effect here."""
    persistent_workers: bool | None = True
    """For the processes of the real machine's input workers; no effect here."""

    def _files(self) -> list[tuple[Path, int]]:
        return labelled_files(self.dataset.root, self.dataset.split, SUFFIXES)

    def count_files(self) -> int:
        return len(self._files())

    def source(self) -> BatchSource:
        files = ImageFiles(self._files(), self.dataset.root)
        ordered = OrderedBatches(
            files,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            shuffle_seed=self.shuffle_seed,
            num_samples=self.num_samples,
            loading=self.loading,
        )
        return CroppedImages(ordered, files, self.ssl_transform, self.shuffle_seed)


class CroppedImages(RedrawnBatches):
    """Batches of crops, drawn anew in each epoch.

    ``global_view`` and ``local_view`` are fp32 (batch, crops, 3, height, width), ``collated_masks``
    is int64 (batch, large crops, patches).
    """

    def __init__(
        self, ordered: OrderedBatches, files: ImageFiles, transform: Dinov2Transform, seed: int
    ) -> None:
        super().__init__(ordered)
        self._files, self._seed = files, seed
        self._masks, crops = transform.masked_patch_transform, transform.multi_crop_transform
        self._changes = [crops.changes(crop) for crop in range(crops.num_crops)]
        self._num_large = crops.global_num_crops

    def batch(self, step: int) -> Batch:
        numbers = self.ordered.batch(step)["numbers"].tolist()
        num_large = self._num_large
        large, small = [], []
        for number, place in zip(numbers, self.ordered.places(step).tolist(), strict=True):
            image, _ = self._files.load(number)
            draw = draws(self._seed, "crops", place)
            crops = [transformed(image, changes, draw) for changes in self._changes]
            large.append(torch.stack(crops[:num_large]))
            small.append(torch.stack(crops[num_large:]))
        random = Random(stream_key(self._seed, "patch masks", step))
        masks = torch.from_numpy(self._masks.draw(len(numbers) * num_large, random))
        return {
            "global_view": torch.stack(large),
            "local_view": torch.stack(small),
            "collated_masks": masks.unflatten(0, (-1, num_large)),
        }
