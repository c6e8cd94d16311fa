"""Random tokens, and random tensors of any shape, for measurements without a dataset.

Every value is a hash of the seed and its place; no sample is stored.
"""

from __future__ import annotations

from math import prod
from typing import Self

import numpy as np
import torch
from pydantic import PositiveInt, model_validator

from modelzoo.data.order import mix64, standard_normal
from modelzoo.data.source import OrderedBatches, next_token_batch
from waferstream.core.config import Config
from waferstream.core.rng import stream_key
from waferstream.workload.data import Batch, BatchSource, DataProcessor


class DummyDataProcessor(DataProcessor):
    """Uniformly random tokens."""

    max_sequence_length: PositiveInt = 128
    vocab_size: PositiveInt = 50257
    num_examples: PositiveInt = 1 << 20
    shuffle: bool = False

    def source(self) -> BatchSource:
        return OrderedBatches(
            DummySamples(self),
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            shuffle_seed=self.shuffle_seed,
            loading=self.loading,
        )


class DummyIterableDataProcessor(DummyDataProcessor):
    """The same data under the name of the vendor's class that reads in order only."""


class DummySamples:
    """Samples whose token t of sample i is a hash of (seed, i, t)."""

    name = "DummyDataProcessor"

    def __init__(self, config: DummyDataProcessor) -> None:
        self._config = config
        self._key = np.uint64(stream_key(config.shuffle_seed, "dummy"))

    def __len__(self) -> int:
        return self._config.num_examples

    def read(self, indices: np.ndarray) -> Batch:
        window = self._config.max_sequence_length + 1
        counters = (indices[:, None] * window + np.arange(window)).astype(np.uint64)
        tokens = mix64(mix64(counters) ^ self._key) % np.uint64(self._config.vocab_size)
        return next_token_batch(tokens)


class SyntheticInput(Config):
    """One tensor: uniform int64 in [low, high), or standard normal fp32 without ``high``."""

    shape: tuple[PositiveInt, ...]
    """Shape of one sample, without the batch dimension."""
    low: int = 0
    high: int | None = None

    @model_validator(mode="after")
    def _range_holds_a_number(self) -> Self:
        if self.high is not None and self.high <= self.low:
            raise ValueError(f"high must be above low, which is {self.low}")
        return self

    def values(self, hashes: np.ndarray) -> torch.Tensor:
        """Return (batch, *shape) numbers from two uint64 hashes each, (2, batch, elements)."""
        if self.high is not None:
            numbers = self.low + (hashes[0] % np.uint64(self.high - self.low)).astype(np.int64)
        else:
            numbers = standard_normal(hashes)
        return torch.from_numpy(numbers).view(-1, *self.shape)


class SyntheticDataProcessor(DataProcessor):
    """Random tensors: ``synthetic_inputs`` gives their names and shapes."""

    synthetic_inputs: dict[str, SyntheticInput]
    num_examples: PositiveInt = 1 << 20
    shuffle: bool = False

    num_files: PositiveInt = 1
    """Files that the samples represent; some kinds of ``loader`` depend on it."""

    def count_files(self) -> int:
        return self.num_files

    def source(self) -> BatchSource:
        return OrderedBatches(
            SyntheticSamples(self),
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            shuffle_seed=self.shuffle_seed,
            loading=self.loading,
        )


class SyntheticSamples:
    """Samples whose element e of input n of sample i is a hash of (seed, n, i, e)."""

    name = "SyntheticDataProcessor"

    def __init__(self, config: SyntheticDataProcessor) -> None:
        self._config = config

    def __len__(self) -> int:
        return self._config.num_examples

    def read(self, indices: np.ndarray) -> Batch:
        return {
            name: description.values(self._hashes(name, indices, prod(description.shape)))
            for name, description in self._config.synthetic_inputs.items()
        }

    def _hashes(self, name: str, indices: np.ndarray, size: int) -> np.ndarray:
        """Return two hashes for each element of the samples, uint64 (2, len(indices), size)."""
        key = np.uint64(stream_key(self._config.shuffle_seed, "synthetic", name))
        counters = (indices[:, None] * size + np.arange(size)).astype(np.uint64)
        first = mix64(mix64(counters) ^ key)
        return np.stack([first, mix64(first ^ key)])
