"""The sampler of global batches."""

from __future__ import annotations

from typing import Any

import pytest

from cstorch.utils.data import DistributedSampler
from cstorch.utils.data.sampler import pad_index
from tests.support.errors import raises
from waferstream.core.errors import ConfigError

DATA = list(range(7))


def test_batches_cover_the_dataset_once() -> None:
    sampler = DistributedSampler(DATA, seed=1, batch_size=2)
    batches = list(sampler)
    assert len(batches) == len(sampler) == 3
    assert batches != list(sampler)  # the next epoch
    sampler.set_epoch(0)
    assert batches == list(sampler)
    indices = [index for batch in batches for index in batch]  # type: ignore[union-attr]
    assert len(set(indices)) == 6


@pytest.mark.parametrize("wrong", [0, -2, 1.5])
def test_batch_size_that_is_not_whole_is_refused(wrong: Any) -> None:
    """It would give empty batches, or none."""
    with raises(ConfigError, "batch-size-not-whole"):
        DistributedSampler(DATA, batch_size=wrong)


def test_start_index_counts_whole_epochs() -> None:
    """After 10 of 7 samples the second epoch goes on with its fourth."""
    sampler = DistributedSampler(DATA, seed=1)
    list(sampler)
    second = list(sampler)
    later = DistributedSampler(DATA, seed=1, start_index=10)
    assert len(later) == 4
    assert list(later) == second[3:]


def test_repetitions_of_a_dataset_are_shuffled_together() -> None:
    """16 of 7 samples: two whole repetitions, then two samples at random, in one permutation."""
    order = list(DistributedSampler(DATA, seed=1, num_samples=16))
    counts = sorted(order.count(index) for index in DATA)
    assert counts == [2, 2, 2, 2, 2, 3, 3]
    assert len(set(order[:7])) < 7


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({"drop_last": False}, [[0, 1, 2], [3, 4, 5], [6]]),
        ({"pad_last": True}, [[0, 1, 2], [3, 4, 5], [6, pad_index, pad_index]]),
        ({"start_index": 4}, [[4, 5, 6]]),
        ({"num_samples": 9}, [[0, 1, 2], [3, 4, 5], [6, 0, 1]]),
    ],
)
def test_ends_of_an_epoch(options: dict[str, Any], batches: list[list[int]]) -> None:
    sampler = DistributedSampler(DATA, shuffle=False, batch_size=3, **options)
    assert len(sampler) == len(batches)
    assert list(sampler) == batches


def test_without_a_batch_size_there_are_indices() -> None:
    sampler = DistributedSampler(DATA, shuffle=False)
    assert list(sampler) == DATA
    assert len(sampler) == 7
