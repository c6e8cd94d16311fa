"""Token sequences from HDF5 files, read on demand (cluster_interface.md, sections 2.4 and 7.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, PositiveInt, field_validator

from modelzoo.data.hdf5_file import FEATURES, Hdf5File, inspect
from modelzoo.data.registry import register_processor
from modelzoo.data.source import (
    Batch,
    BatchSource,
    DataProcessor,
    OrderedBatches,
    Samples,
    find_files,
)
from wsc.core.errors import DataError
from wsc.core.loading import LoaderKind, Loading


@register_processor
class GptHDF5MapDataProcessor(DataProcessor):
    """Sequences for language models, prepared as HDF5 files."""

    data_dir: str | Annotated[tuple[str, ...], Field(min_length=1)]
    """Folders of ``*.h5`` files, files, or globs."""

    max_sequence_length: PositiveInt | None = None
    """Sequence length of corpus files, which are cut when they are read."""

    shuffle: bool = False

    num_samples: PositiveInt | None = None
    """Length of an epoch; a shuffle then mixes several passes over the data."""

    data_subset: str | None = None
    """Parts of the data as fractions of the whole, in file order: ``"0.0-0.5,0.7-1.0"``."""

    sort_files: bool = True
    """Sort the files of all folders together; otherwise folder after folder, as listed."""

    drop_last: Literal[True] = True
    """Every batch is whole: samples left over at the end of an epoch start the next one."""

    use_vsl: Literal[False] = False
    """Packing of variable-length sequences is not supported."""

    loader: LoaderKind = "hdf5"

    prefetch_factor: int = 10
    persistent_workers: bool = True
    use_worker_cache: bool = False
    """These three tune the processes of the real machine's input workers; no effect here."""

    @field_validator("data_subset")
    @classmethod
    def _is_readable(cls, text: str | None) -> str | None:
        if text is not None:
            parse_subset(text)
        return text

    @property
    def loading(self) -> Loading:
        try:
            num_files = len(self._paths())
        except DataError:  # a simulation needs no data
            return super().loading
        return replace(super().loading, num_files=num_files)

    def source(self) -> BatchSource:
        name = ", ".join(self._patterns)
        files = [inspect(path, self.max_sequence_length) for path in self._paths()]
        samples: Samples = Hdf5Samples(files, name)
        if self.data_subset is not None:
            samples = Subset(samples, parse_subset(self.data_subset))
        return OrderedBatches(
            samples,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            shuffle_seed=self.shuffle_seed,
            num_samples=self.num_samples,
            loading=self.loading,
        )

    @property
    def _patterns(self) -> tuple[str, ...]:
        return (self.data_dir,) if isinstance(self.data_dir, str) else self.data_dir

    def _paths(self) -> list[Path]:
        """Return the files of all patterns; DataError if a pattern matches none."""
        paths = [path for pattern in self._patterns for path in find_files(pattern, [".h5"])]
        return sorted(paths) if self.sort_files else paths


class Hdf5Samples:
    """Sequences of several files, one file after the other.

    A file is open only while a batch is read, so there may be any number of files.

    Raises:
        DataError: The files have different sequence lengths.
    """

    def __init__(self, files: Sequence[Hdf5File], name: str) -> None:
        first = files[0]
        for file in files:
            if file.length != first.length:
                raise DataError(
                    "all files must have one sequence length",
                    code="sequence-lengths-differ",
                    where=f"{first.path}, {file.path}",
                    value=f"{first.length}, {file.length}",
                    rule="one max_sequence_length per dataset",
                )
        self.name = name
        self._files = files
        self._starts = _starts([file.num_sequences for file in files])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: np.ndarray) -> Batch:
        sequences = np.empty((len(indices), len(FEATURES), self._files[0].length), dtype=np.int64)
        parts, rows = _locate(self._starts, indices)
        for part in np.unique(parts):
            inside = parts == part
            sequences[inside] = self._files[part].read(rows[inside])
        tensors = torch.from_numpy(sequences)
        return {name: tensors[:, row].contiguous() for row, name in enumerate(FEATURES)}


class Subset:
    """Ranges of another dataset's samples, given as fractions of it."""

    def __init__(self, samples: Samples, fractions: Sequence[tuple[float, float]]) -> None:
        bounds = [(round(a * len(samples)), round(b * len(samples))) for a, b in fractions]
        self.name = samples.name
        self._samples = samples
        self._first = np.array([start for start, _ in bounds])
        self._starts = _starts([stop - start for start, stop in bounds])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: np.ndarray) -> Batch:
        parts, rows = _locate(self._starts, indices)
        return self._samples.read(self._first[parts] + rows)


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


def _starts(sizes: Sequence[int]) -> np.ndarray:
    """Return the start of each part in the whole; the last entry is the size of the whole."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _locate(starts: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the part that holds each index, and its row in that part."""
    parts = np.searchsorted(starts, indices, side="right") - 1
    return parts, indices - starts[parts]
