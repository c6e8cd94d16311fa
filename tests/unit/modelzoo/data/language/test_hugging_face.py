"""Datasets of Hugging Face on the disk become sequences of next tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest
import torch

from tests.support.errors import raises
from waferstream.core.errors import ConfigError, DataError
from waferstream.workload.data import Batch, data_processor

TEXTS = ["abcd", "", "efghi"]
IDS = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
IN_ORDER = {"batch_size": 2, "max_sequence_length": 4, "shuffle": False}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in two splits, of which one is in several files."""
    train = datasets.Dataset.from_dict({"text": TEXTS, "ids": IDS, "rate": [0.1, 0.2, 0.3]})
    path = tmp_path_factory.mktemp("data") / "set"
    found = datasets.DatasetDict({"train": train, "test": train.select([2, 1, 0])})
    found.save_to_disk(path, num_shards={"train": 3, "test": 1})
    return path


def _batch(folder: Path, **keys: Any) -> Batch:
    config = {"data_processor": "HuggingFaceDatasetProcessor", "path": str(folder), **IN_ORDER}
    return data_processor(config | keys, "loader").source().batch(0)


def test_texts_are_tokenized_and_joined(folder: Path) -> None:
    """Each text has its end; a label is the next token."""
    batch = _batch(folder, split="train", tokenizer="bytes")
    joined = torch.tensor(list(b"abcd\0efghi\0"))
    assert torch.equal(batch["input_ids"].flatten(), joined[:8])
    assert torch.equal(batch["labels"].flatten(), joined[1:9])


def test_ids_are_used_as_they_are(folder: Path) -> None:
    """Also those of a split in an order of its own, and of a folder without splits."""
    assert _batch(folder, split="train", column="ids")["input_ids"].flatten().tolist() == [
        *range(1, 9)
    ]
    ids = _batch(folder / "test", column="ids")["input_ids"].flatten().tolist()
    assert ids == [6, 7, 8, 9, 4, 5, 1, 2]


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({}, "dataset-split-missing"),
        ({"split": "dev"}, "dataset-split-missing"),
        ({"split": "train", "column": "body"}, "dataset-column-missing"),
        ({"split": "train"}, "dataset-column-of-other-type"),
        ({"split": "train", "column": "rate"}, "dataset-column-of-other-type"),
        ({"split": "train", "column": "ids", "tokenizer": "bytes"}, "dataset-column-of-other-type"),
        ({"split": "train", "column": "ids", "vocab_size": 9}, "token-outside-vocabulary"),
        (
            {"split": "train", "tokenizer": "bytes", "max_sequence_length": 99},
            "text-shorter-than-sequence",
        ),
    ],
)
def test_what_cannot_be_read_is_told(folder: Path, keys: dict[str, Any], code: str) -> None:
    with raises(DataError, code):
        _batch(folder, **keys)


def test_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    with raises(ConfigError, "tokenizer-larger-than-model"):
        _batch(folder, split="train", tokenizer="bytes", vocab_size=100)


def test_damaged_folder_is_told(tmp_path: Path) -> None:
    with raises(DataError, "dataset-damaged"):
        _batch(tmp_path)
