"""Sentences of GLUE become tokens, segments and classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.errors import raises
from waferstream.core.errors import DataError
from waferstream.workload.data import BatchSource, build_source

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "##b", "c", '"']
PAIRS = "index\tsentence1\tsentence2\tgold_label\n"


def source(folder: Path, task: str, **keys: Any) -> BatchSource:
    (folder / "vocabulary.txt").write_text("\n".join(VOCABULARY) + "\n")
    section = {
        "data_processor": f"{task}DataProcessor",
        "is_training": True,
        "data_dir": str(folder),
        "vocab_file": str(folder / "vocabulary.txt"),
        "max_sequence_length": 8,
        "do_lower": True,
        "shuffle": False,
        "batch_size": 2,
    }
    found: BatchSource = build_source(section | keys, "x")
    return found


def test_sentences_have_special_tokens_and_padding(tmp_path: Path) -> None:
    """A quote is a character as others, and the last sentence is cut."""
    (tmp_path / "train.tsv").write_text('sentence\tlabel\nA "bb\t1\na b c a b c a b\t0\n')
    batch = source(tmp_path, "SST2").batch(0)
    expected = [[2, 4, 8, 5, 6, 3, 0, 0], [2, 4, 5, 7, 4, 5, 7, 3]]
    assert batch["input_ids"].tolist() == expected
    assert batch["attention_mask"].tolist() == [[1] * 6 + [0] * 2, [1] * 8]
    assert not batch["token_type_ids"].any()
    assert batch["labels"].tolist() == [1, 0]


def test_pairs_lose_tokens_of_the_longer_sentence(tmp_path: Path) -> None:
    """And have two segments, each with its end."""
    rows = "0\ta a a a\tb c\tcontradiction\n1\ta\tb\tentailment\n"
    (tmp_path / "train.tsv").write_text(PAIRS + rows)
    batch = source(tmp_path, "MNLI").batch(0)
    assert batch["input_ids"].tolist() == [[2, 4, 4, 4, 3, 5, 7, 3], [2, 4, 3, 5, 3, 0, 0, 0]]
    assert batch["token_type_ids"].tolist() == [[0] * 5 + [1] * 3, [0] * 3 + [1] * 2 + [0] * 3]
    assert batch["labels"].tolist() == [2, 0]
    assert "is_matched" not in batch


def test_development_pairs_tell_their_table(tmp_path: Path) -> None:
    for table, words in (("dev_matched", "a"), ("dev_mismatched", "b")):
        (tmp_path / f"{table}.tsv").write_text(PAIRS + f"0\t{words}\tc\tneutral\n" * 3)
    batch = source(tmp_path, "MNLI", is_training=False, batch_size=6).batch(0)
    assert batch["input_ids"][:, 1].tolist() == [4, 4, 4, 5, 5, 5]
    assert batch["is_matched"].tolist() == [1, 1, 1, 0, 0, 0]
    assert torch.equal(batch["is_mismatched"], 1 - batch["is_matched"])


@pytest.mark.parametrize(
    ("table", "code"),
    [
        (None, "csv-damaged"),
        ("index\tsentence1\n0\ta\n1\ta\n", "csv-column-missing"),
        (PAIRS + "0\ta\n" * 2, "csv-damaged"),
        (PAIRS + "0\ta\tb\tperhaps\n" * 2, "unknown-label"),
    ],
)
def test_damaged_tables_are_refused(tmp_path: Path, table: str | None, code: str) -> None:
    """No file, a missing column or value, an unknown class."""
    if table is not None:
        (tmp_path / "train.tsv").write_text(table)
    with raises(DataError, code):
        source(tmp_path, "MNLI").batch(0)
