"""Sampler of global batches, for loaders that are built on input workers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler

pad_index = -1
"""Index that stands for a sample of padding."""


class DistributedSampler(Sampler[int | list[int]]):
    """Indices of a dataset in the order of training, in batches if there is a batch size.

    Every input worker reads whole global batches (``cstorch.distributed``), so that there is one
    shard. The order of an epoch depends on ``seed`` and ``set_epoch`` only.

    Args:
        data_source: The dataset.
        shuffle: Whether to permute the samples; otherwise they come in their order.
        seed: Seed of the permutation; None takes torch's.
        start_index: Samples to skip at the beginning.
        shard: Accepted without effect.
        batch_size: Samples of a global batch; None yields single indices.
        drop_last: Whether to leave an incomplete last batch out.
        num_samples: Samples of an epoch; None for those of the dataset.
        pad_last: Whether to fill an incomplete last batch with ``pad_index``.
    """

    def __init__(
        self,
        data_source: Sized,
        shuffle: bool = True,
        seed: int | None = None,
        start_index: int = 0,
        shard: bool = True,  # noqa: ARG002
        batch_size: int | None = None,
        drop_last: bool = True,
        num_samples: int | None = None,
        pad_last: bool = False,
    ) -> None:
        self.data_source = data_source
        self.shuffle = shuffle
        self.seed = seed
        self.start_index = start_index
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.pad_last = pad_last
        self._num_samples = num_samples
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of the next epoch."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int | list[int]]:
        order = self._order()
        if self.batch_size is None:
            yield from order
            return
        for begin in range(0, len(order), self.batch_size):
            batch = order[begin : begin + self.batch_size]
            missing = self.batch_size - len(batch)
            if missing and self.pad_last:
                batch = batch + [pad_index] * missing
            elif missing and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        samples = max(0, self._samples() - self.start_index)
        if self.batch_size is None:
            return samples
        is_short = self.drop_last and not self.pad_last
        return samples // self.batch_size if is_short else math.ceil(samples / self.batch_size)

    def _samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _order(self) -> list[int]:
        """Return the indices of the epoch; a dataset shorter than the epoch is repeated."""
        size, wanted = len(self.data_source), self._samples()
        generator = torch.Generator()
        seed = torch.initial_seed() if self.seed is None else self.seed
        generator.manual_seed(seed + self._epoch)
        order: list[int] = []
        while size and len(order) < wanted:
            indices = torch.randperm(size, generator=generator) if self.shuffle else range(size)
            order += [int(index) for index in indices]
        return order[self.start_index : wanted]
