"""Words with classes, and documents with sentences of a summary, become padded samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.errors import raises
from tests.support.files.dataset_files import write_csv
from waferstream.core.errors import DataError
from waferstream.workload.data import BatchSource, build_source

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"]
CLASSES = {"O": 1, "B-Chemical": 2, "X": 3}
DOCUMENT = ["input_ids", "labels", "segment_ids", "cls_indices"]


def source(folder: Path, kind: str, **keys: Any) -> BatchSource:
    (folder / "vocabulary.txt").write_text("\n".join(VOCABULARY) + "\n")
    section = {
        "data_processor": kind,
        "data_dir": str(folder),
        "vocab_file": str(folder / "vocabulary.txt"),
        "max_sequence_length": 6,
        "shuffle": False,
        "batch_size": 2,
    }
    found: BatchSource = build_source(section | keys, "x")
    return found


def words(folder: Path, rows: list[list[str]], **keys: Any) -> BatchSource:
    write_csv(folder / "a.csv", rows, ["tokens", "labels"])
    classes = folder / "label2id.json"
    classes.write_text(json.dumps(CLASSES))
    kind = "BertTokenClassifierDataProcessor"
    return source(folder, kind, **{"label_vocab_file": str(classes), **keys})


def test_words_have_classes(tmp_path: Path) -> None:
    """Rows are padded; the second one is cut."""
    rows = [["[CLS] a b other", "O B-Chemical X O"], ["a a a a a b b", "O O O O O X X"]]
    batch = words(tmp_path, rows).batch(0)
    assert batch["input_ids"].tolist() == [[2, 4, 5, 1, 0, 0], [4, 4, 4, 4, 4, 5]]
    assert batch["labels"].tolist() == [[1, 2, 3, 1, 0, 0], [1, 1, 1, 1, 1, 3]]
    assert batch["attention_mask"].tolist() == [[1] * 4 + [0] * 2, [1] * 6]
    assert batch["loss_mask"].tolist() == batch["attention_mask"].tolist()
    assert not batch["token_type_ids"].any()


def test_padding_may_count(tmp_path: Path) -> None:
    """With a class of its own, and in the vocabulary's case."""
    keys = {"include_padding_in_loss": True, "labels_pad_id": 3, "do_lower": True}
    batch = words(tmp_path, [["A", "O"]] * 2, **keys).batch(0)
    assert batch["loss_mask"].all()
    assert batch["labels"][0].tolist() == [1, 3, 3, 3, 3, 3]
    assert batch["input_ids"][0].tolist() == [4, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("row", [["a b", "O"], ["a", "B-Disease"], ["a " * 9, "O " * 8]])
def test_wrong_classes_are_refused(row: list[str], tmp_path: Path) -> None:
    """Those of words that are cut off, too."""
    with raises(DataError, "unknown-label"):
        words(tmp_path, [row] * 2).batch(0)


@pytest.mark.parametrize("text", ["", "[1]", '{"O": "one"}'])
def test_damaged_file_of_classes_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with raises(DataError, "classes-not-readable"):
        words(tmp_path, [["a", "O"]] * 2, label_vocab_file=str(file))


def test_sentences_of_documents_count_where_they_fit(tmp_path: Path) -> None:
    """The first sentence too; one after the end or the most of sentences is left out."""
    rows = [
        [[2, 4, 3, 2, 5, 3, 2, 4], [1, 0, 1], [0, 0, 0, 1, 1, 1, 0, 0], [0, 3, 6]],
        [[2, 4, 2, 4, 2], [0, 1, 1], [0, 0, 1, 1, 0], [0, 2, 4]],
    ]
    write_csv(tmp_path / "a.csv", rows, DOCUMENT)
    batch = source(tmp_path, "BertSumCSVDataProcessor", max_cls_tokens=2).batch(0)
    assert batch["input_ids"].tolist() == [[2, 4, 3, 2, 5, 3], [2, 4, 2, 4, 2, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 6, [1] * 5 + [0]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]]
    assert batch["cls_indices"].tolist() == [[0, 3], [0, 2]]
    assert batch["labels"].tolist() == [[1, 0], [0, 1]]
    assert batch["cls_weights"].tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_documents_are_padded_with_sentences_that_do_not_count(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [[[2, 4], [1], [0, 0], [0]]] * 2, DOCUMENT)
    batch = source(tmp_path, "BertSumCSVDataProcessor", max_cls_tokens=2, pad_id=5).batch(0)
    assert batch["input_ids"][0].tolist() == [2, 4, 5, 5, 5, 5]
    assert batch["cls_weights"][0].tolist() == [1.0, 0.0]


def test_damaged_document_is_refused(tmp_path: Path) -> None:
    """It has as many positions as labels."""
    write_csv(tmp_path / "a.csv", [[[2, 4], [1, 0], [0, 0], [0]]] * 2, DOCUMENT)
    with raises(DataError, "document-damaged"):
        source(tmp_path, "BertSumCSVDataProcessor", max_cls_tokens=2).batch(0)
