"""Images to classify, from folders of ImageNet's layout: ``FOLDER/SPLIT/CLASS/*.JPEG``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from pydantic import field_validator as check

from modelzoo.data.files.folders import FolderProcessor, cached, labelled_files
from modelzoo.data.images.transforms import (
    Resize,
    Size,
    ToTensor,
    Transform,
    checked_order,
    transformed,
)
from modelzoo.data.order import Draw, draws
from modelzoo.data.source import OrderedBatches, RedrawnBatches
from waferstream.core.errors import DataError
from waferstream.workload.data import Batch, BatchSource

SUFFIXES = (".jpeg", ".jpg", ".png", ".ppm", ".bmp", ".webp")


class ImageNet1KProcessor(FolderProcessor):
    """Images by class (Russakovsky et al. 2015, ImageNet); they are changed anew in each epoch."""

    data_dir: str
    """Folder with a folder for each split."""
    split: Literal["train", "val"] = "train"
    """Samples of ``val`` are never shuffled."""
    transforms: tuple[Transform, ...]
    """Changes to every image, in order."""
    image_size: Size = (224, 224)
    """Height and width of images with ``noaugment``."""
    noaugment: bool = False
    """Whether images are only scaled to ``image_size``, in place of ``transforms``."""
    shuffle: bool = True
    use_worker_cache: bool = False
    """Copy the folder to the disk of each input worker's host before it is read."""

    num_classes: Any = None
    """No effect: classes are the folders of a split."""
    mixup_alpha: float = 0.1
    """No effect, as at the vendor, whose data loader mixes no images."""
    cutmix_alpha: float = 0.1
    """No effect, as at the vendor, whose data loader mixes no images."""
    prefetch_factor: int | None = 10
    """For the processes of the real machine's input workers; no effect here."""
    persistent_workers: bool | None = True
    """For the processes of the real machine's input workers; no effect here."""

    @check("transforms")
    @classmethod
    def _end_in_tensors(cls, transforms: tuple[Transform, ...]) -> tuple[Transform, ...]:
        return checked_order(transforms)

    @property
    def shuffles(self) -> bool:
        """Whether samples are shuffled: those of the split ``train`` may be."""
        return self.shuffle and self.split == "train"

    @property
    def changes(self) -> tuple[Transform, ...]:
        """Changes to every image, in order."""
        if not self.noaugment:
            return self.transforms
        return (Resize(name="resize", size=self.image_size), ToTensor(name="to_tensor"))

    def count_files(self) -> int:
        return len(labelled_files(self.data_dir, self.split, SUFFIXES))

    def source(self) -> BatchSource:
        folder = cached(self.data_dir) if self.use_worker_cache else self.data_dir
        files = ImageFiles(labelled_files(folder, self.split, SUFFIXES), self.data_dir)
        return ChangedImages(self.ordered(files), files, self.changes, self.shuffle_seed)


class ImageFiles:
    """Images by number, with labels."""

    def __init__(self, files: Sequence[tuple[Path, int]], name: str) -> None:
        self.name = name
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def read(self, indices: np.ndarray) -> Batch:
        """Return the numbers of samples; their files are opened when their places are known."""
        return {"numbers": torch.from_numpy(indices)}

    def path(self, number: int) -> str:
        """Return the file of an image."""
        return str(self._files[number][0])

    def load(self, number: int) -> tuple[Image.Image, int]:
        """Return an image in red, green and blue, and its label; DataError if it is damaged."""
        path, label = self._files[number]
        return load_image(path), label


def load_image(path: Path) -> Image.Image:
    """Return an image in red, green and blue; DataError if it is missing or damaged."""
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except Exception as error:  # Pillow raises many kinds on damaged files
        raise DataError(
            "the image cannot be read",
            code="image-damaged",
            where=str(path),
            value=error,
            remedy="write or copy the file again",
        ) from error


def changed_image(
    image: Image.Image, changes: Sequence[Transform], draw: Draw, where: str
) -> torch.Tensor:
    """Return an image, read from ``where``, as fp32 (3, height, width); DataError if it cannot."""
    try:
        return transformed(image, changes, draw)
    except ValueError as error:
        raise DataError(
            "the image cannot be changed as transforms state",
            code="image-not-changed",
            where=where,
            value=error,
            remedy="remove the image, or state height and width in resize",
        ) from error


class ChangedImages(RedrawnBatches):
    """Batches of images, changed anew in each epoch: fp32 (batch, 3, height, width)."""

    def __init__(
        self,
        ordered: OrderedBatches,
        files: ImageFiles,
        changes: Sequence[Transform],
        seed: int,
    ) -> None:
        super().__init__(ordered)
        self._files, self._changes, self._seed = files, changes, seed

    def batch(self, step: int) -> Batch:
        numbers = self.ordered.batch(step)["numbers"].tolist()
        images, labels = [], []
        for number, place in zip(numbers, self.ordered.places(step).tolist(), strict=True):
            image, label = self._files.load(number)
            draw = draws(self._seed, "image", place)
            images.append(changed_image(image, self._changes, draw, self._files.path(number)))
            labels.append(label)
        self._check_alike(images)
        return {"images": torch.stack(images), "labels": torch.tensor(labels, dtype=torch.int64)}

    def _check_alike(self, images: Sequence[torch.Tensor]) -> None:
        """Refuse images of several sizes."""
        sizes = {tuple(image.shape[1:]) for image in images}
        if len(sizes) > 1:
            raise DataError(
                "all images of a batch must have one size",
                code="image-sizes-differ",
                where=self._files.name,
                value=f"heights and widths {sorted(sizes)}",
                remedy="end transforms with a resize to [height, width]",
            )
