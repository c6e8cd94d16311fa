"""What data processors open: samples, put in order, cut into global batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Annotated, Any, Protocol

import numpy as np
import torch
from pydantic import Field

from modelzoo.data.order import SampleOrder
from waferstream.core.errors import DataError
from waferstream.core.program.program import UNKNOWN_LOADING, Loading
from waferstream.workload.data import Batch

EarlierKey = Annotated[Any, Field(description="A key of earlier releases, without effect.")]
"""A key that is accepted and not read."""


class Samples(Protocol):
    """A dataset with random access to its samples."""

    name: str
    """Name in errors, usually a path."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def read(self, indices: np.ndarray) -> Batch:
        """Return the samples at int64 ``indices``, in that order."""


class OrderedBatches:
    """Batch source over any samples: an endless stream of samples, cut every ``batch_size``.

    An epoch has ``num_samples`` samples, by default each one once; a larger number appends copies
    and a smaller one omits samples (before the shuffle). Samples left over at the end of an epoch
    start the first batch of the next one.

    Raises:
        DataError: There is no sample, or an epoch does not fill one batch.
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
            raise DataError(
                "the dataset must have at least one sample",
                code="dataset-empty",
                where=samples.name,
            )
        epoch_size = num_samples or len(samples)
        if epoch_size < batch_size:
            raise DataError(
                "an epoch must fill at least one global batch",
                code="dataset-shorter-than-batch",
                where=samples.name,
                value=f"{epoch_size} samples, batch_size {batch_size}",
                rule="at least batch_size samples",
                remedy="lower batch_size, lower max_sequence_length, or add data",
            )
        self.batch_size = batch_size
        self.loading = loading
        self._samples = samples
        self._order = SampleOrder(epoch_size, shuffle, shuffle_seed)

    def __len__(self) -> int:
        return self._order.num_samples // self.batch_size

    def batch(self, step: int) -> Batch:
        return self._samples.read(self._order.at(self.places(step)) % len(self._samples))

    def __iter__(self) -> Iterator[Batch]:
        return (self.batch(step) for step in count())

    def places(self, step: int) -> np.ndarray:
        """Return the places of a batch in the endless stream of samples, int64."""
        first = step * self.batch_size
        return np.arange(first, first + self.batch_size, dtype=np.int64)


class RedrawnBatches(ABC):
    """Batch source over ordered samples that are changed at random, anew in each epoch.

    What is drawn for a sample is a function of the seed and its place in the endless stream.
    """

    def __init__(self, ordered: OrderedBatches) -> None:
        self.batch_size = ordered.batch_size
        self.loading = ordered.loading
        self.ordered = ordered

    def __len__(self) -> int:
        return len(self.ordered)

    @abstractmethod
    def batch(self, step: int) -> Batch:
        """Return the global batch of a step, counted from 0; epochs follow each other."""

    def __iter__(self) -> Iterator[Batch]:
        return (self.batch(step) for step in count())


def next_token_batch(windows: np.ndarray) -> Batch:
    """Turn token windows (batch, T + 1) into inputs and next-token labels of length T."""
    tokens = torch.from_numpy(windows.astype(np.int64))
    inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return {"input_ids": inputs, "attention_mask": torch.ones_like(inputs), "labels": labels}


def padded(lists: Sequence[Sequence[int]], length: int, padding: int) -> torch.Tensor:
    """Return lists of numbers as rows of one length, int64 (N, length)."""
    rows = [[*each, *[padding] * (length - len(each))] for each in lists]
    return torch.tensor(rows, dtype=torch.int64)


def starts_of_parts(sizes: Sequence[int]) -> np.ndarray:
    """Return the start of each part in the whole, int64; the last entry is the whole's size."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def located(starts: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the part that holds each index of the whole, and the index in that part."""
    parts = np.searchsorted(starts, indices, side="right") - 1
    return parts, indices - starts[parts]
