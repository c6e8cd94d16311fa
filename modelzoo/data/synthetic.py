"""Random tensors of any shape, for models whose inputs are not plain token sequences."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Self

import numpy as np
import torch
from pydantic import PositiveInt, model_validator

from modelzoo.data.order import mix64
from modelzoo.data.source import Batch, BatchSource, DataProcessor, OrderedBatches
from wsc.core.config import Config
from wsc.core.loading import Loading
from wsc.core.rng import stream_key


class SyntheticInput(Config):
    """One tensor: uniform int64 in [low, high), or without ``high`` standard normal fp32."""

    shape: tuple[PositiveInt, ...]
    """Of one sample, without the batch dimension."""
    low: int = 0
    high: int | None = None

    @model_validator(mode="after")
    def _range_holds_a_number(self) -> Self:
        if self.high is not None and self.high <= self.low:
            raise ValueError(f"high is above low, which is {self.low}")
        return self

    def values(self, hashes: np.ndarray) -> torch.Tensor:
        """Numbers from two uint64 hashes for each; ``hashes`` is (2, batch, elements)."""
        if self.high is not None:
            numbers = self.low + (hashes[0] % np.uint64(self.high - self.low)).astype(np.int64)
        else:
            numbers = _normal(hashes)
        return torch.from_numpy(numbers).view(-1, *self.shape)


class SyntheticDataProcessor(DataProcessor):
    """Nothing to learn, every shape to measure: ``synthetic_inputs`` names the tensors."""

    synthetic_inputs: dict[str, SyntheticInput]
    num_examples: PositiveInt = 1 << 20
    shuffle: bool = False

    num_files: PositiveInt = 1
    """Files that the samples stand for, which matters to some kinds of ``loader``."""

    @property
    def loading(self) -> Loading:
        return replace(super().loading, num_files=self.num_files)

    def source(self) -> BatchSource:
        return OrderedBatches(
            SyntheticSamples(self),
            batch_size=self.batch_size,
            shuffle=self.shuffle,
            shuffle_seed=self.shuffle_seed,
            loading=self.loading,
        )


class SyntheticSamples:
    """Element e of input n of sample i is a hash of (seed, n, i, e); no sample is ever stored."""

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
        key = np.uint64(stream_key(self._config.shuffle_seed, "synthetic", name))
        counters = (indices[:, None] * size + np.arange(size)).astype(np.uint64)
        first = mix64(mix64(counters) ^ key)
        return np.stack([first, mix64(first ^ key)])


def _normal(hashes: np.ndarray) -> np.ndarray:
    """Standard normal fp32 numbers from pairs of hashes (Box and Muller 1958)."""
    upper_bits = (hashes >> np.uint64(11)).astype(np.float64)
    radius, angle = (upper_bits + 0.5) / 2.0**53  # inside (0, 1), so that the logarithm is finite
    numbers: np.ndarray = np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
    return numbers.astype(np.float32)
