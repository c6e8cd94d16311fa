"""Synthetic tokens, for measurements and dry runs that need no dataset."""

from __future__ import annotations

import numpy as np
from pydantic import PositiveInt

from modelzoo.data.order import mix64
from modelzoo.data.source import Batch, BatchSource, DataProcessor, OrderedBatches, next_token_batch
from wsc.core.rng import stream_key


class DummyDataProcessor(DataProcessor):
    """Uniformly random tokens: nothing to learn, every shape to measure."""

    max_sequence_length: PositiveInt
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


class DummySamples:
    """Token t of sample i is a hash of (seed, i, t); no sample is ever stored."""

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
