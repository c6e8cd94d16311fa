"""Digits are read from the files that torchvision stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.errors import raises
from tests.support.files.dataset_files import DIGITS, write_digits
from waferstream.core.errors import DataError
from waferstream.workload.data import BatchSource, build_source


def source(folder: Path, **keys: Any) -> BatchSource:
    section = {
        "data_processor": "MNISTDataProcessor",
        "data_dir": str(folder),
        "split": "train",
        "shuffle": False,
        "drop_last_batch": True,
        "batch_size": 2,
    }
    found: BatchSource = build_source(section | keys, "x")
    return found


@pytest.mark.parametrize(("split", "part"), [("train", "train"), ("val", "t10k")])
def test_digits_are_normalized(split: str, part: str, tmp_path: Path) -> None:
    write_digits(tmp_path, part)
    batch = source(tmp_path, split=split).batch(1)
    expected = (torch.from_numpy(DIGITS[2:4]).float() / 255.0 - 0.1307) / 0.3081
    assert torch.equal(batch["images"], expected[:, None])
    assert batch["labels"].tolist() == [9, 9]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """None, another number of images than labels, another kind, and half of a file."""
    with raises(DataError, "digits-damaged"):
        source(tmp_path)
    raw = write_digits(tmp_path, "train", DIGITS[:4])
    with raises(DataError, "digits-mismatch"):
        source(tmp_path)
    labels = raw / "train-labels-idx1-ubyte"
    good = labels.read_bytes()
    for damaged in (good[4:], good[:-1], b""):
        labels.write_bytes(damaged)
        with raises(DataError, "digits-damaged"):
            source(tmp_path)
