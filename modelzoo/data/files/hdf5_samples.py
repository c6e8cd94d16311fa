"""Datasets of HDF5 files: one after the other, parts of them, and weighted mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from modelzoo.data.files.hdf5_file import Hdf5File
from modelzoo.data.source import Samples, located, starts_of_parts
from waferstream.core.errors import DataError
from waferstream.workload.data import Batch

_SMALL_SHARE = 0.05
"""Datasets of at most this share of a mixture do not decide the length of an epoch."""


class Hdf5Samples:
    """Sequences of several files, one file after the other.

    A file is open only while a batch is read, so there may be any number of files; they are alike.
    """

    def __init__(self, files: Sequence[Hdf5File], name: str) -> None:
        first = files[0]
        self.name = name
        self._features, self._shape = first.features, first.shape
        self._files = files
        self._starts = starts_of_parts([file.num_sequences for file in files])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: np.ndarray) -> Batch:
        sequences = np.empty((len(indices), len(self._features), *self._shape), dtype=np.int64)
        parts, rows = located(self._starts, indices)
        for part in np.unique(parts):
            inside = parts == part
            sequences[inside] = self._files[part].read(rows[inside])
        tensors = torch.from_numpy(sequences)
        return {name: tensors[:, row].contiguous() for row, name in enumerate(self._features)}


class SideBySide:
    """Two datasets that hold different features of the same samples."""

    def __init__(self, first: Samples, second: Samples) -> None:
        if len(first) != len(second):
            raise DataError(
                "both datasets of the files must have the same samples",
                code="sequence-count-mismatch",
                where=first.name,
                value=f"{len(first)} and {len(second)}",
            )
        self.name = first.name
        self._first, self._second = first, second

    def __len__(self) -> int:
        return len(self._first)

    def read(self, indices: np.ndarray) -> Batch:
        return self._first.read(indices) | self._second.read(indices)


class Subset:
    """Ranges of another dataset's samples, given as fractions of it."""

    def __init__(self, samples: Samples, fractions: Sequence[tuple[float, float]]) -> None:
        bounds = [(round(a * len(samples)), round(b * len(samples))) for a, b in fractions]
        self.name = samples.name
        self._samples = samples
        self._first = np.array([start for start, _ in bounds])
        self._starts = starts_of_parts([stop - start for start, stop in bounds])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: np.ndarray) -> Batch:
        parts, rows = located(self._starts, indices)
        return self._samples.read(self._first[parts] + rows)


class Mixture:
    """Datasets mixed in the proportion of their weights, each in its own order.

    An epoch is as long as it takes to see each sample of every dataset of at least 5 % once, so
    that samples of other datasets come several times. The datasets alternate as evenly as their
    numbers allow (Bresenham's line), so that a position is found in constant time.

    Raises:
        ValueError: There is no positive weight.
    """

    def __init__(self, datasets: Sequence[Samples], weights: Sequence[float]) -> None:
        used = [(each, weight) for each, weight in zip(datasets, weights, strict=True) if weight]
        total = sum(weight for _, weight in used)
        shares = [weight / total for _, weight in used]
        whole = [
            len(each) / share
            for (each, _), share in zip(used, shares, strict=True)
            if share > _SMALL_SHARE or len(used) * _SMALL_SHARE >= 1
        ]
        self.name = " + ".join(each.name for each, _ in used)
        self._datasets = [each for each, _ in used]
        self._counts = [int(max(whole) * share) for share in shares]

    def __len__(self) -> int:
        return sum(self._counts)

    def read(self, indices: np.ndarray) -> Batch:
        rest, places, total = indices, np.arange(len(indices)), len(self)
        parts: list[tuple[np.ndarray, Batch]] = []
        for dataset, count in zip(self._datasets, self._counts, strict=True):
            before = rest * count // total  # samples of this dataset before each position
            is_here = (rest + 1) * count // total > before
            if is_here.any():
                parts.append((places[is_here], dataset.read(before[is_here] % len(dataset))))
            rest, places = (rest - before)[~is_here], places[~is_here]
            total -= count
        order = torch.from_numpy(np.concatenate([places for places, _ in parts]).argsort())
        return {name: torch.cat([batch[name] for _, batch in parts])[order] for name in parts[0][1]}


def parse_subset(text: str) -> tuple[tuple[float, float], ...]:
    """Read ``"0.0-0.5,0.7-1.0"``; ValueError unless the ranges rise within 0 to 1."""
    rule = f"{text!r} must be a list of rising ranges within 0 and 1, such as '0.0-0.5,0.7-1.0'"
    try:
        ranges = [tuple(float(end) for end in part.split("-")) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(rule) from error
    ends = [end for pair in ranges for end in pair]
    rising = all(a <= b for a, b in pairwise([0.0, *ends, 1.0]))
    if not rising or any(len(pair) != 2 or pair[0] == pair[1] for pair in ranges):
        raise ValueError(rule)
    return tuple((start, stop) for start, stop in ranges)


def check_alike(files: Sequence[Hdf5File]) -> None:
    """Raise DataError for files of different sequence lengths or features."""
    first = files[0]
    for file in files:
        if (file.shape, file.features) != (first.shape, first.features):
            raise DataError(
                "all files must have one sequence length and the same features",
                code="sequence-lengths-differ",
                where=f"{first.path}, {file.path}",
                value=f"{first.shape} {first.features}, {file.shape} {file.features}",
                rule="one max_sequence_length per dataset",
            )
