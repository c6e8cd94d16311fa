"""Where batches come from: samples, put in order, cut into global batches.

A data processor describes a dataset in params.yaml; ``source()`` opens it. Every source has
random access: batch ``step`` is a pure function of the configuration and the step, so that a
resumed run, another number of systems, or another number of input workers sees the same batches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import count
from typing import Protocol

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveInt

from modelzoo.data.order import SampleOrder
from wsc.core.config import Config
from wsc.core.errors import DataError
from wsc.core.loading import UNKNOWN_LOADING, LoaderKind, Loading

Batch = dict[str, torch.Tensor]
"""Contiguous tensors by name, the batch in the first dimension.

Tokens for a model that predicts the next one: ``input_ids``, ``attention_mask`` (the loss mask) and
``labels`` (already shifted), all int64 of shape (batch, max_sequence_length).
"""


class BatchSource(Protocol):
    """Global batches by step."""

    batch_size: int
    """Samples of one step over all systems."""

    loading: Loading
    """Who loads on the emulated machine; no value depends on it."""

    def __len__(self) -> int:
        """Whole global batches in an epoch."""

    def batch(self, step: int) -> Batch:
        """The global batch of a step, counted from 0; past an epoch's end the next one begins."""

    def __iter__(self) -> Iterator[Batch]:
        """Batches 0, 1, 2, ... without end."""


class Samples(Protocol):
    """A dataset with random access to its samples."""

    name: str
    """What to call it in an error: a path, mostly."""

    def __len__(self) -> int:
        """Number of samples."""

    def read(self, indices: np.ndarray) -> Batch:
        """The samples at int64 ``indices``, in that order."""


class OrderedBatches:
    """The batch source over any samples: an endless stream of samples, cut every ``batch_size``.

    An epoch has ``num_samples`` samples, by default each one once; a larger number appends copies
    and a smaller one leaves samples out (before the shuffle). What is left over at the end of an
    epoch opens the next one's first batch. Raises DataError if an epoch cannot fill one batch.
    """

    def __init__(
        self,
        samples: Samples,
        *,
        batch_size: int,
        shuffle: bool,
        shuffle_seed: int,
        num_samples: int | None = None,
        loading: Loading = UNKNOWN_LOADING,
    ) -> None:
        if len(samples) == 0:
            raise DataError("the dataset holds no sample", where=samples.name)
        epoch_size = num_samples or len(samples)
        if epoch_size < batch_size:
            raise DataError(
                "the dataset is shorter than one global batch",
                where=samples.name,
                value=f"{epoch_size} samples, batch_size {batch_size}",
                rule="an epoch fills at least one batch",
                remedy="lower batch_size, lower max_sequence_length, or add data",
            )
        self.batch_size = batch_size
        self.loading = loading
        self._samples = samples
        self._order = SampleOrder(epoch_size, shuffle, shuffle_seed)

    def __len__(self) -> int:
        return self._order.num_samples // self.batch_size

    def batch(self, step: int) -> Batch:
        first = step * self.batch_size
        positions = np.arange(first, first + self.batch_size, dtype=np.int64)
        return self._samples.read(self._order.at(positions) % len(self._samples))

    def __iter__(self) -> Iterator[Batch]:
        return (self.batch(step) for step in count())


class DataProcessor(Config):
    """Keys that every data processor has."""

    data_processor: str
    """Name of the class, looked up in modelzoo.data.registry."""

    batch_size: PositiveInt
    """Global: samples of one step over all systems, before micro-batching."""

    shuffle_seed: int = 0

    loader: LoaderKind = "other"
    """Whose time loading takes on the emulated machine: a loader of machine.input in cluster.yaml.

    Data that are made up on the spot may stand for files in this way.
    """

    num_workers: NonNegativeInt = 0
    """Processes that load for an input worker of the emulated machine; 0 is the worker's own."""

    @property
    def loading(self) -> Loading:
        """Who loads on the emulated machine."""
        return Loading(self.loader, self.num_workers)

    @abstractmethod
    def source(self) -> BatchSource:
        """Open the dataset. Raises DataError if it is missing, broken or too short."""


def next_token_batch(windows: np.ndarray) -> Batch:
    """Turn token windows (batch, T + 1) into inputs and next-token labels of length T."""
    tokens = torch.from_numpy(windows.astype(np.int64))
    inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return {"input_ids": inputs, "attention_mask": torch.ones_like(inputs), "labels": labels}
