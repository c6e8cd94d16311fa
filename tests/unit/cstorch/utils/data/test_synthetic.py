"""Datasets of made-up samples."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

from cstorch.utils.data import SyntheticDataset
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def test_samples_have_the_structure_of_the_specification() -> None:
    spec = {"x": torch.ones(2), "y": [lambda i: torch.tensor(i + 1), lambda: torch.zeros(1)]}
    dataset = SyntheticDataset(spec, num_samples=3)
    assert len(dataset) == 3
    sample = dataset[2]
    assert sample["x"] is spec["x"]
    assert [int(t) for t in sample["y"]] == [3, 0]
    with pytest.raises(IndexError):
        dataset[3]
    assert len(SyntheticDataset(spec)) > 10**9


def test_dataset_can_be_iterated() -> None:
    """Up to its length, and by a loader of torch."""
    dataset = SyntheticDataset(torch.tensor, num_samples=3)
    assert [int(sample) for sample in dataset] == [0, 1, 2]
    assert [batch.tolist() for batch in DataLoader(dataset, batch_size=2)] == [[0, 1], [2]]


def test_wrong_specifications_are_refused() -> None:
    with raises(ConfigError, "sample-not-of-tensors"):
        SyntheticDataset({"x": 3})
    with raises(ConfigError, "no-sample"):
        SyntheticDataset(torch.ones(1), num_samples=0)
