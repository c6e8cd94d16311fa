"""Masked sequences of HDF5 files, gathered or not, packed or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from modelzoo.data.bert.hdf5 import BertHDF5DataProcessor
from modelzoo.data.source import BatchSource
from tests.support.errors import raises
from waferstream.core.errors import ConfigError, DataError

FIRST = np.arange(6, dtype=np.int32)[:, None]


def write_masked(path: Path, tokens: int, labels: np.ndarray, count: int = 6) -> None:
    """Sequences of four tokens, whose rows are 0 + n, 10 + n and so on."""
    rows = np.stack([FIRST[:count] + 10 * row + np.zeros(4, int) for row in range(tokens)], 1)
    with h5py.File(path, "w") as file:
        file["data"], file["labels"] = rows.astype(np.int32), labels.astype(np.int32)
        file.attrs["n_examples"] = count


def opened(folder: Path, **keys: Any) -> BatchSource:
    section = {"data_processor": "BertHDF5DataProcessor", "data_dir": str(folder), "batch_size": 3}
    return BertHDF5DataProcessor.model_validate(section | keys).source()


def test_labels_of_minus_100_do_not_count(tmp_path: Path) -> None:
    labels = np.full((6, 1, 4), -100)
    labels[:, 0, 2] = 7
    write_masked(tmp_path / "a.h5", 2, labels)
    batch = opened(tmp_path).batch(1)
    assert batch["input_ids"].tolist() == [[3] * 4, [4] * 4, [5] * 4]
    assert batch["attention_mask"].tolist() == [[13] * 4, [14] * 4, [15] * 4]
    assert batch["labels"].tolist() == [[0, 0, 7, 0]] * 3
    assert batch["masked_lm_mask"].tolist() == [[0, 0, 1, 0]] * 3


def test_gathered_labels_have_positions(tmp_path: Path) -> None:
    """Also of packed sequences, whose rows state their documents."""
    labels = np.stack([np.full((6, 2), 7), np.tile([1, 3], (6, 1)), np.tile([1, 0], (6, 1))], 1)
    write_masked(tmp_path / "a.h5", 4, labels)
    batch = opened(tmp_path, use_vsl=True).batch(0)
    assert batch["masked_lm_positions"].tolist() == [[1, 3]] * 3
    assert batch["masked_lm_mask"].tolist() == [[1, 0]] * 3
    assert batch["position_ids"][2].tolist() == [32] * 4
    with raises(DataError, "hdf5-dataset-wrong-shape"):
        opened(tmp_path)


def test_files_of_different_kinds_are_refused(tmp_path: Path) -> None:
    """Gathered and not; and a file with fewer labels than sequences."""
    write_masked(tmp_path / "a.h5", 2, np.zeros((6, 3, 4)))
    write_masked(tmp_path / "b.h5", 2, np.zeros((6, 1, 4)))
    with raises(DataError, "sequence-lengths-differ"):
        opened(tmp_path)
    (tmp_path / "b.h5").unlink()
    write_masked(tmp_path / "a.h5", 2, np.zeros((5, 1, 4)))
    with raises(DataError, "sequence-count-mismatch"):
        opened(tmp_path)


def test_keys_of_next_tokens_are_refused(tmp_path: Path) -> None:
    for keys in ({"max_sequence_length": 4}, {"data_transforms": [{"name": "add_sink_tokens"}]}):
        with pytest.raises(ConfigError):
            opened(tmp_path, **keys)
