"""Encoders train on files of their tasks as in a plain loop, on any number of systems."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelzoo.data.registry import build_source
from scripts import reference_loop
from tests.support.tiny_models import NO_DROPOUT, SIZES, TINY_MODELS
from tests.support.tiny_training import Shape, init_config, train_on_cluster
from tests.unit.modelzoo.data.test_csv_file import write_csv

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(chr(97 + number) for number in range(26))]


def write_pairs(folder: Path) -> dict[str, Any]:
    rows = [f"{_WORDS[4 + n]} b\t{_WORDS[5 + n]}\tneutral" for n in range(12)]
    (folder / "train.tsv").write_text("\n".join(["sentence1\tsentence2\tgold_label", *rows]))
    return {"data_processor": "MNLIDataProcessor", "is_training": True}


def write_words(folder: Path) -> dict[str, Any]:
    rows = [[f"{_WORDS[4 + n]} b c", "O X O"] for n in range(12)]
    write_csv(folder / "a.csv", rows, ["tokens", "labels"])
    (folder / "label2id.json").write_text(json.dumps({"O": 1, "X": 2}))
    name = "BertTokenClassifierDataProcessor"
    return {"data_processor": name, "label_vocab_file": str(folder / "label2id.json")}


def write_documents(folder: Path) -> dict[str, Any]:
    rows = [[[2, 4 + n, 3, 2, 5], [n % 2, 1], [0, 0, 0, 1, 1], [0, 3]] for n in range(12)]
    write_csv(folder / "a.csv", rows, ["input_ids", "labels", "segment_ids", "cls_indices"])
    return {"data_processor": "BertSumCSVDataProcessor", "max_cls_tokens": 3}


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("bert/classifier", write_pairs),
        ("bert/token_classifier", write_words),
        ("bert/extractive_summarization", write_documents),
    ],
)
def test_weights_equal_those_of_the_loop(
    name: str, write: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "vocabulary.txt").write_text("\n".join(_WORDS))
    data = write(tmp_path) | {
        "data_dir": str(tmp_path),
        "vocab_file": str(tmp_path / "vocabulary.txt"),
        "max_sequence_length": 8,
        "shuffle_seed": 1,
        "batch_size": 6,
    }
    init = init_config({"name": name, **SIZES, **NO_DROPOUT, **TINY_MODELS[name]})
    source = build_source(data, "test")
    model = reference_loop.train(init, map(source.batch, range(2)), source.batch_size)
    expected = reference_loop.weights_sha256(model)
    assert [train_on_cluster(init, Shape(n), 2, data=data) for n in (1, 2)] == [expected] * 2
