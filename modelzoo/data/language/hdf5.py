"""Token sequences from HDF5 files, read on demand (Model Zoo 2.10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from modelzoo.data.files.folders import cached
from modelzoo.data.files.hdf5_file import Hdf5File, inspect
from modelzoo.data.files.hdf5_samples import (
    Hdf5Samples,
    Mixture,
    Subset,
    check_alike,
    parse_subset,
)
from modelzoo.data.source import EarlierKey, OrderedBatches, Samples
from waferstream.core.config import Config, before
from waferstream.core.errors import DataError
from waferstream.core.program.program import LoaderKind
from waferstream.preparation.written import packing_of
from waferstream.workload.data import Batch, BatchSource, DataProcessor
from waferstream.workload.data_files import find_files
from waferstream.workload.packing import Packing

Patterns = str | Annotated[tuple[str, ...], Field(min_length=1)]
"""Folders of ``*.h5`` files, files, or globs."""


class AddSinkTokens(Config):
    """Tokens put into every sequence for all queries to attend to; their losses do not count.

    Xiao et al. 2023, "Efficient streaming language models with attention sinks".
    """

    name: Literal["add_sink_tokens"]
    sink_token_id: NonNegativeInt = 0
    num_sink_tokens: PositiveInt = 1
    sink_token_start_pos: NonNegativeInt = 0
    truncate_to_original_length: bool = False
    """Whether as many tokens are cut off at the end."""

    def apply(self, batch: Batch, where: str) -> Batch:
        """Return a batch with the tokens; DataError if its sequences end before their place."""
        place, length = self.sink_token_start_pos, batch["input_ids"].shape[1]
        if place > length:
            raise DataError(
                "sink_token_start_pos must be at most the length of a sequence",
                code="sink-token-outside",
                where=where,
                value=f"{place}, sequences of {length}",
            )
        fills = {"input_ids": self.sink_token_id, "labels": self.sink_token_id, "attention_mask": 0}
        end = length if self.truncate_to_original_length else length + self.num_sink_tokens
        changed = {}
        for name, rows in batch.items():
            added = torch.full((len(rows), self.num_sink_tokens), fills[name], dtype=rows.dtype)
            longer = torch.cat([rows[:, :place], added, rows[:, place:]], dim=1)
            changed[name] = longer[:, :end].contiguous()
        return changed


class Transformed:
    """Another dataset's samples, changed (Model Zoo 2.10: ``data_transforms``)."""

    def __init__(self, samples: Samples, transforms: Sequence[AddSinkTokens]) -> None:
        self.name = samples.name
        self._samples = samples
        self._transforms = transforms

    def __len__(self) -> int:
        return len(self._samples)

    def read(self, indices: np.ndarray) -> Batch:
        batch = self._samples.read(indices)
        for transform in self._transforms:
            batch = transform.apply(batch, self.name)
        return batch


def _checked_subset(text: str | None) -> str | None:
    """Return the text of a subset; ValueError if it is none."""
    if text is not None:
        parse_subset(text)
    return text


SubsetText = Annotated[str | None, AfterValidator(_checked_subset)]
"""Parts of the data as fractions of the whole, in file order: ``"0.0-0.5,0.7-1.0"``."""


class MixtureEntry(Config):
    """One dataset of a mixture."""

    data_dir: Patterns
    weight: NonNegativeFloat
    """Share of the samples, relative to the other weights."""
    data_subset: SubsetText = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """Folders, files and globs."""
        return (self.data_dir,) if isinstance(self.data_dir, str) else self.data_dir


class GptHDF5MapDataProcessor(DataProcessor):
    """Sequences for language models, prepared as HDF5 files."""

    data_dir: Patterns | None = None
    """Folders of ``*.h5`` files, files, or globs; or else ``mixture``."""

    mixture: Annotated[tuple[MixtureEntry, ...], Field(min_length=1)] | None = None
    """Several datasets, mixed in the proportion of their weights."""

    max_sequence_length: PositiveInt | None = None
    """Sequence length of corpus files, which are cut when they are read."""

    shuffle: bool = False

    num_samples: PositiveInt | None = None
    """Length of an epoch; a shuffle then mixes several passes over the data."""

    data_subset: SubsetText = None

    sort_files: bool = True
    """Sort the files of all folders together; otherwise folder after folder, as listed."""

    drop_last: Literal[True] = True
    """Every batch is whole: samples left over at the end of an epoch start the next one."""

    pad_last: bool = False
    """Accepted for compatibility: there is never an incomplete last batch."""

    use_vsl: bool = False
    """Whether sequences are packed documents, which do not attend to each other."""

    data_transforms: Annotated[
        tuple[AddSinkTokens, ...],
        before(lambda value: value or (), tuple[AddSinkTokens, ...] | None),
    ] = ()
    """Changes to every sequence, in this order."""

    use_worker_cache: bool = False
    """Copy the folders to the disk of each input worker's host before they are read."""

    loader: LoaderKind = "hdf5"

    prefetch_factor: int | None = 10
    """For the processes of the real machine's input workers; no effect here."""
    persistent_workers: bool = True
    """For the processes of the real machine's input workers; no effect here."""

    vocab_size: EarlierKey = None
    repeat: EarlierKey = None
    use_multiple_workers: EarlierKey = None

    @model_validator(mode="after")
    def _has_one_description(self) -> Self:
        if (self.data_dir is None) == (self.mixture is None):
            raise ValueError("one of data_dir and mixture must be given, not both")
        if self.mixture is not None:
            if self.data_subset is not None:
                raise ValueError("with a mixture, data_subset is a key of its entries")
            if not any(entry.weight for entry in self.mixture):
                raise ValueError("one weight of the mixture must be more than 0")
        if self.use_vsl and (self.data_transforms or self.max_sequence_length is not None):
            raise ValueError("use_vsl excludes data_transforms and max_sequence_length")
        return self

    def count_files(self) -> int:
        return sum(map(len, self._paths(str)))

    def packing(self) -> Packing | None:
        """Return how full the sequences of prepared files are, if all of them are read alike."""
        if self.mixture is not None or self.data_subset or self.data_transforms:
            return None
        try:
            return packing_of([path for paths in self._paths(str) for path in paths])
        except DataError:  # a simulation needs no data
            return None

    def source(self) -> BatchSource:
        return self.ordered()

    def ordered(self) -> OrderedBatches:
        """Return the sequences in their configured order; DataError if their files are wrong."""
        datasets = [
            samples
            if entry.data_subset is None
            else Subset(samples, parse_subset(entry.data_subset))
            for samples, entry in zip(self.opened(self.paths()), self.entries, strict=True)
        ]
        samples: Samples = datasets[0]
        if self.mixture is not None:
            samples = Mixture(datasets, [entry.weight for entry in self.mixture])
        if self.data_transforms:
            samples = Transformed(samples, self.data_transforms)
        return OrderedBatches(
            samples,
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            shuffle_seed=self.shuffle_seed,
            num_samples=self.num_samples,
            loading=self.loading,
        )

    def opened(self, parts: Sequence[Sequence[Path]]) -> list[Samples]:
        """Return the sequences of each dataset; DataError if its files are wrong."""
        length, use_vsl = self.max_sequence_length, self.use_vsl
        return self.joined([[inspect(path, length, use_vsl) for path in paths] for paths in parts])

    def joined(self, parts: Sequence[Sequence[Hdf5File]]) -> list[Samples]:
        """Return the samples of the files of each dataset; DataError if files are not alike."""
        check_alike([file for files in parts for file in files])
        return [
            Hdf5Samples(files, ", ".join(entry.patterns))
            for files, entry in zip(parts, self.entries, strict=True)
        ]

    @property
    def entries(self) -> tuple[MixtureEntry, ...]:
        """All datasets, of which there is one without a mixture."""
        if self.mixture is not None:
            return self.mixture
        assert self.data_dir is not None, "checked when the configuration was read"
        return (MixtureEntry(data_dir=self.data_dir, weight=1, data_subset=self.data_subset),)

    def paths(self) -> list[list[Path]]:
        """Return the files of each dataset that are read; DataError if a pattern matches none."""
        return self._paths(cached if self.use_worker_cache else str)

    def _paths(self, read: Callable[[str], str]) -> list[list[Path]]:
        """Return the files of each dataset, below what ``read`` makes of each pattern."""
        found = []
        for entry in self.entries:
            patterns = map(read, entry.patterns)
            paths = [path for pattern in patterns for path in find_files(pattern, [".h5"])]
            found.append(sorted(paths) if self.sort_files else paths)
        return found


class GptHDF5DataProcessor(GptHDF5MapDataProcessor):
    """The iterable reader of earlier releases: the same files, read by random access.

    A shuffle is one of the whole data set here, not of a buffer.
    """

    shuffle_buffer: PositiveInt | None = None
    """Accepted for compatibility."""


class UncutHDF5DataProcessor(GptHDF5MapDataProcessor):
    """Samples that are used as they were prepared."""

    data_transforms: Annotated[
        tuple[AddSinkTokens, ...], before(lambda value: value or (), tuple[()] | None)
    ] = Field(default=(), max_length=0)
    """Must be empty: transforms are for sequences of next tokens."""
    max_sequence_length: None = None
    """Must be null: only sequences of next tokens are cut."""
