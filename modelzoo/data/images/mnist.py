"""Handwritten digits (LeCun et al. 1998, MNIST), in the files that torchvision stores."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from modelzoo.data.files.folders import FolderProcessor
from modelzoo.data.source import EarlierKey
from waferstream.core.errors import DataError
from waferstream.workload.data import Batch, BatchSource

_MEAN, _DEVIATION = 0.1307, 0.3081
"""Of all pixels of the training images, as numbers from 0 to 1."""
_IMAGES, _LABELS = 2051, 2049
"""First number of a file: bytes in three dimensions, and in one."""


class MNISTDataProcessor(FolderProcessor):
    """Images of digits, normalized, with their classes."""

    data_dir: str = "./"
    """Folder that has the files in ``MNIST/raw``; they are not downloaded."""
    split: Literal["train", "val"]
    shuffle: bool = True
    drop_last: Literal[True] = Field(default=True, alias="drop_last_batch")
    """Every batch is whole: samples left over at the end of an epoch start the next one."""
    use_fake_data: Literal[False] = False
    to_float16: EarlierKey = None

    def source(self) -> BatchSource:
        folder = Path(self.data_dir).expanduser() / "MNIST" / "raw"
        part = "train" if self.split == "train" else "t10k"
        return self.ordered(Digits(folder, part))


class Digits:
    """Images and labels, held in memory."""

    def __init__(self, folder: Path, part: str) -> None:
        self.name = f"{folder}, {part}"
        self._images = read_idx(folder / f"{part}-images-idx3-ubyte", _IMAGES)
        self._labels = read_idx(folder / f"{part}-labels-idx1-ubyte", _LABELS)
        if self._images.shape != (len(self._labels), 28, 28):
            raise DataError(
                "every image must have 28 x 28 pixels and a label",
                code="digits-mismatch",
                where=self.name,
                value=f"images of shape {self._images.shape}, {len(self._labels)} labels",
            )

    def __len__(self) -> int:
        return len(self._labels)

    def read(self, indices: np.ndarray) -> Batch:
        pixels = torch.from_numpy(self._images[indices])[:, None].float() / 255.0
        labels = torch.from_numpy(self._labels[indices].astype(np.int64))
        return {"images": (pixels - _MEAN) / _DEVIATION, "labels": labels}


def read_idx(path: Path, kind: int) -> np.ndarray:
    """Return the array of bytes in a file, or in one that gzip has packed.

    A file has its kind and the size of each dimension as big-endian numbers of 32 bits, then the
    values. Raises DataError if it is missing or damaged.
    """
    packed = path.with_name(f"{path.name}.gz")
    try:
        content = path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())
        num_dimensions = kind % 256
        header = np.frombuffer(content, dtype=">u4", count=1 + num_dimensions)
        if header[0] != kind:
            raise ValueError(f"begins with {header[0]} instead of {kind}")
        values = np.frombuffer(content, dtype=np.uint8, offset=header.nbytes)
        return values.reshape([int(size) for size in header[1:]])
    except (OSError, EOFError, ValueError) as error:
        raise DataError(
            "the file of digits cannot be read",
            code="digits-damaged",
            where=str(path),
            value=error,
            remedy="correct data_dir, or download the file again",
        ) from error
