"""Pairs of responses are read by the names of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from modelzoo.data.language.dpo import PAIR_FEATURES, DpoHDF5DataProcessor
from tests.support.errors import raises
from waferstream.core.errors import ConfigError, DataError
from waferstream.workload.data import BatchSource


def write_pairs(path: Path, first: int = 0, count: int = 4, rows: int = 6) -> None:
    """Write pairs of responses of four tokens: row r of pair n has 10 r + n everywhere."""
    numbers = first + np.arange(count)[:, None, None] + 10 * np.arange(rows)[:, None]
    with h5py.File(path, "w") as file:
        file["data"] = np.broadcast_to(numbers, (count, rows, 4)).astype(np.int32)
        file.attrs["n_examples"] = count


def opened(folder: Path, **keys: Any) -> BatchSource:
    section = {"data_processor": "DpoHDF5DataProcessor", "data_dir": str(folder), "batch_size": 3}
    return DpoHDF5DataProcessor.model_validate(section | keys).source()


def test_rows_are_features(tmp_path: Path) -> None:
    """Over all files, in order."""
    write_pairs(tmp_path / "a.h5")
    write_pairs(tmp_path / "b.h5", first=4)
    batch = opened(tmp_path).batch(1)
    assert tuple(batch) == PAIR_FEATURES
    assert [each[0, 0].item() for each in batch.values()] == [3, 13, 23, 33, 43, 53]
    assert batch["rejected_labels"].tolist() == [[53] * 4, [54] * 4, [55] * 4]


def test_rows_have_the_stated_order(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a.h5")
    names = (*PAIR_FEATURES[3:], *PAIR_FEATURES[:3])
    assert opened(tmp_path, features_list=names).batch(0)["rejected_input_ids"][2, 0] == 2


def test_files_of_other_data_are_refused(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a.h5", rows=3)
    with raises(DataError, "hdf5-dataset-wrong-shape"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "keys",
    [{"features_list": ["input_ids"]}, {"use_vsl": True}, {"max_sequence_length": 4}],
)
def test_keys_of_other_data_are_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        opened(tmp_path, **keys)
