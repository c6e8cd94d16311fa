"""Sampler of global batches, for loaders that are built on input workers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler

from waferstream.core.errors import ConfigError

pad_index = -1
"""Index that stands for a sample of padding."""


class DistributedSampler(Sampler[int | list[int]]):
    """Indices of a dataset in the order of training, in batches if there is a batch size.

    Every input worker reads whole global batches (``cstorch.distributed``), so that there is one
    shard. The order of an epoch depends on ``seed`` and its number only: every complete iteration
    goes on to the next epoch, ``set_epoch`` chooses one.

    Args:
        data_source: The dataset.
        shuffle: Whether to permute the samples; otherwise they come in their order.
        seed: Seed of the permutation; None takes torch's.
        start_index: Samples to skip at the beginning, whole epochs included.
        shard: Accepted without effect.
        batch_size: Samples of a global batch; None yields single indices.
        drop_last: Whether to leave an incomplete last batch out.
        num_samples: Samples of an epoch; None for those of the dataset. Repetitions of a smaller
            dataset are shuffled together.
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
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ConfigError(
                "batch_size must be None or a whole number of at least 1",
                code="batch-size-not-whole",
                where=type(self).__name__,
                value=f"{batch_size!r}",
            )
        self.data_source = data_source
        self.shuffle = shuffle
        self.seed = seed
        self.start_index = start_index
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.pad_last = pad_last
        self._num_samples = num_samples
        self._epoch, self._skipped = divmod(start_index, max(1, self._samples()))

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of the next epoch."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int | list[int]]:
        yield from self._batches()
        self._epoch += 1
        self._skipped = 0

    def _batches(self) -> Iterator[int | list[int]]:
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
        samples = self._samples() - self._skipped
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
        repeated = torch.arange(wanted) % max(1, size)
        if self.shuffle and size:
            # The last repetition may be incomplete, so it takes samples at random.
            last = (max(wanted, 1) - 1) // size * size
            repeated[last:] = torch.randperm(size, generator=generator)[: wanted - last]
            if last:
                repeated = repeated[torch.randperm(wanted, generator=generator)]
        order: list[int] = repeated.tolist() if size else []
        return order[self._skipped :]
