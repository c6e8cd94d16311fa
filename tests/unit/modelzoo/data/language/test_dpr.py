"""Questions and their passages are read by the names of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from modelzoo.data.language.dpr import DPRHDF5DataProcessor
from tests.support.errors import raises
from waferstream.core.errors import ConfigError, DataError
from waferstream.workload.data import BatchSource


def write_texts(path: Path, count: int = 4, num_passages: int = 2, questions: int = 4) -> None:
    """Write texts of five tokens: question n has n + 10 row, its passage p 100 more by 100 p."""
    numbers = np.arange(count)[:, None] + 10 * np.arange(3)
    passages = 100 * np.arange(1, num_passages + 1)[:, None] + np.zeros(5, int)
    with h5py.File(path, "w") as file:
        file["data_0"] = (numbers[:questions, :, None] + np.zeros(5, int)).astype(np.int32)
        file["data_1"] = (numbers[:, :, None, None] + passages).astype(np.int32)
        file.attrs["n_examples"] = count


def opened(folder: Path, **keys: Any) -> BatchSource:
    section = {"data_processor": "DPRHDF5DataProcessor", "data_dir": str(folder), "batch_size": 3}
    return DPRHDF5DataProcessor.model_validate(section | keys).source()


def test_rows_are_features(tmp_path: Path) -> None:
    """Passages keep a dimension of their own."""
    write_texts(tmp_path / "a.h5")
    batch = opened(tmp_path).batch(0)
    assert batch["questions_attention_mask"].tolist() == [[10] * 5, [11] * 5, [12] * 5]
    assert batch["ctx_token_type_ids"].shape == (3, 2, 5)
    assert batch["ctx_token_type_ids"][1].tolist() == [[121] * 5, [221] * 5]
    parts = ("input_ids", "attention_mask", "token_type_ids")
    assert list(batch) == [f"{side}_{part}" for side in ("questions", "ctx") for part in parts]


def test_every_question_has_as_many_passages(tmp_path: Path) -> None:
    """In all files."""
    write_texts(tmp_path / "a.h5")
    write_texts(tmp_path / "b.h5", num_passages=3)
    with raises(DataError, "sequence-lengths-differ"):
        opened(tmp_path)
    (tmp_path / "b.h5").unlink()
    write_texts(tmp_path / "a.h5", questions=3)
    with raises(DataError, "sequence-count-mismatch"):
        opened(tmp_path)


def test_files_without_passages_are_refused(tmp_path: Path) -> None:
    write_texts(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "r+") as file:
        first = file["data_1"][:, :, 0]
        del file["data_1"]
        file["data_1"] = first
    with raises(DataError, "hdf5-dataset-wrong-shape"):
        opened(tmp_path)


@pytest.mark.parametrize("keys", [{"use_vsl": True}, {"max_sequence_length": 5}])
def test_keys_of_other_data_are_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        opened(tmp_path, **keys)
