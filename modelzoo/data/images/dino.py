"""Crops of images and masks of their patches, for encoders that learn without labels."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Literal, Self

import torch
from pydantic import PositiveInt, model_validator

from modelzoo.data.files.folders import labelled_files
from modelzoo.data.images.classification import SUFFIXES, ImageFiles
from modelzoo.data.images.crops import MultiCrop
from modelzoo.data.images.patch_masks import PatchMasks
from modelzoo.data.images.transforms import transformed
from modelzoo.data.order import draws
from modelzoo.data.registry import register_processor
from modelzoo.data.source import Batch, BatchSource, DataProcessor, OrderedBatches, RedrawnBatches
from waferstream.core.config import Config
from waferstream.core.rng import stream_key


class ImageFolder(Config):
    """Images in folders of ImageNet's layout: ``ROOT/SPLIT/CLASS/*.JPEG``."""

    name: Literal["Imagenet"]
    root: str
    split: Literal["train", "val"] = "train"


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


@register_processor
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
