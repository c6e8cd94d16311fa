"""Small files of datasets, in the formats of their data processors."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

DIGITS = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
DIGIT_LABELS = np.array([3, 0, 9, 9, 1], dtype=np.uint8)


def write_csv(path: Path, rows: Sequence[Sequence[object]], columns: Sequence[str]) -> None:
    """Write rows below the names of their columns, and the number of rows into ``meta.dat``."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    with (path.parent / "meta.dat").open("a") as file:
        file.write(f"{path.name} {len(rows)}\n")


def write_digits(folder: Path, part: str, images: np.ndarray = DIGITS) -> Path:
    """Write images, packed, and labels; return the folder of the files."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    header = np.array([2051, *images.shape], dtype=">u4").tobytes()
    packed = gzip.compress(header + images.tobytes())
    (raw / f"{part}-images-idx3-ubyte.gz").write_bytes(packed)
    header = np.array([2049, len(DIGIT_LABELS)], dtype=">u4").tobytes()
    (raw / f"{part}-labels-idx1-ubyte").write_bytes(header + DIGIT_LABELS.tobytes())
    return raw
