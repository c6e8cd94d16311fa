"""How fast this host reads the batches of a loader."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class EpochMetrics:
    """Batches, samples, bytes and seconds of one epoch."""

    batches: int
    samples: int
    num_bytes: int
    seconds: float

    @property
    def samples_per_s(self) -> float:
        return self.samples / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class Metrics:
    """The epochs of one benchmark, in order."""

    epochs: tuple[EpochMetrics, ...]

    @property
    def samples_per_s(self) -> float:
        """Samples per second over all epochs."""
        seconds = sum(epoch.seconds for epoch in self.epochs)
        return sum(epoch.samples for epoch in self.epochs) / max(seconds, 1e-9)


def benchmark_dataloader(
    input_fn: Callable[..., Iterable[Any]],
    num_epochs: int | None = None,
    steps_per_epoch: int | None = None,
    sampling_frequency: int | None = None,  # noqa: ARG001
    profile_activities: Sequence[str] | None = None,  # noqa: ARG001
    print_metrics: bool = True,
) -> Metrics:
    """Read the batches of a loader in this process, and measure how long that takes.

    Args:
        input_fn: Makes the loader.
        num_epochs: Epochs to read, by default one.
        steps_per_epoch: Batches of an epoch, by default all.
        sampling_frequency: Accepted without effect: each epoch is measured as a whole.
        profile_activities: Accepted without effect: processor and memory are not sampled.
        print_metrics: Whether to print a line for each epoch.
    """
    loader = input_fn()
    metrics = Metrics(tuple(_epoch(loader, steps_per_epoch) for _ in range(num_epochs or 1)))
    for number, epoch in enumerate(metrics.epochs if print_metrics else (), start=1):
        print(
            f"Epoch {number}: {epoch.batches} batches, {epoch.samples} samples in "
            f"{epoch.seconds:.3f} s, {epoch.samples_per_s:.1f} samples/s, "
            f"{epoch.num_bytes / max(epoch.seconds, 1e-9) / 1e6:.1f} MB/s"
        )
    return metrics


def _epoch(loader: Iterable[Any], steps: int | None) -> EpochMetrics:
    batches = samples = num_bytes = 0
    start_s = time.perf_counter()
    for batch in islice(loader, steps):
        tensors = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
        batches += 1
        samples += tensors[0].shape[0] if tensors else 0
        num_bytes += sum(tensor.nbytes for tensor in tensors)
    return EpochMetrics(batches, samples, num_bytes, time.perf_counter() - start_s)
