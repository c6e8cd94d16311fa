"""The benchmark of a loader."""

from __future__ import annotations

from cstorch.utils.benchmark import benchmark_dataloader
from tests.support.roles.local_machine import random_batches


def test_benchmark_reads_the_batches_that_are_asked_for() -> None:
    metrics = benchmark_dataloader(lambda: random_batches(3, 4), num_epochs=2, steps_per_epoch=2)
    assert [(epoch.batches, epoch.samples) for epoch in metrics.epochs] == [(2, 8), (2, 8)]
    assert metrics.epochs[0].num_bytes == 2 * 2 * 4 * 4 * 4
    assert metrics.samples_per_s > 0
