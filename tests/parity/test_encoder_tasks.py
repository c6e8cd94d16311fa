"""Encoders train on files of their tasks as in a plain loop, on any number of systems."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from modelzoo.data.registry import build_source
from scripts import reference_loop
from tests.support.tiny_models import NO_DROPOUT, SIZES, TINY_MODELS
from tests.support.tiny_training import Shape, init_config, train_on_cluster
from tests.unit.modelzoo.data.test_csv_file import write_csv

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(chr(97 + number) for number in range(26))]


def words(folder: Path) -> dict[str, Any]:
    (folder / "vocabulary.txt").write_text("\n".join(_WORDS))
    return {"vocab_file": str(folder / "vocabulary.txt"), "max_sequence_length": 8}


def write_pairs(folder: Path) -> dict[str, Any]:
    rows = [f"{_WORDS[4 + n]} b\t{_WORDS[5 + n]}\tneutral" for n in range(12)]
    (folder / "train.tsv").write_text("\n".join(["sentence1\tsentence2\tgold_label", *rows]))
    return {"data_processor": "MNLIDataProcessor", "is_training": True, **words(folder)}


def write_words(folder: Path) -> dict[str, Any]:
    rows = [[f"{_WORDS[4 + n]} b c", "O X O"] for n in range(12)]
    write_csv(folder / "a.csv", rows, ["tokens", "labels"])
    (folder / "label2id.json").write_text(json.dumps({"O": 1, "X": 2}))
    name = "BertTokenClassifierDataProcessor"
    classes = {"label_vocab_file": str(folder / "label2id.json")}
    return {"data_processor": name, **classes, **words(folder)}


def write_documents(folder: Path) -> dict[str, Any]:
    rows = [[[2, 4 + n, 3, 2, 5], [n % 2, 1], [0, 0, 0, 1, 1], [0, 3]] for n in range(12)]
    write_csv(folder / "a.csv", rows, ["input_ids", "labels", "segment_ids", "cls_indices"])
    return {"data_processor": "BertSumCSVDataProcessor", "max_cls_tokens": 3, **words(folder)}


def write_images(folder: Path) -> dict[str, Any]:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 14, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        place = folder / "train" / f"n{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")
    crop = {"name": "random_resized_crop", "size": [8, 12]}
    transforms = [crop, {"name": "random_horizontal_flip"}, {"name": "to_tensor"}]
    return {"data_processor": "ImageNet1KProcessor", "transforms": transforms}


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("bert/classifier", write_pairs),
        ("bert/token_classifier", write_words),
        ("bert/extractive_summarization", write_documents),
        ("vision_transformer", write_images),
    ],
)
def test_weights_equal_those_of_the_loop(
    name: str, write: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    data = write(tmp_path) | {"data_dir": str(tmp_path), "shuffle_seed": 1, "batch_size": 6}
    init = init_config({"name": name, **SIZES, **NO_DROPOUT, **TINY_MODELS[name]})
    source = build_source(data, "test")
    model = reference_loop.train(init, map(source.batch, range(2)), source.batch_size)
    expected = reference_loop.weights_sha256(model)
    assert [train_on_cluster(init, Shape(n), 2, data=data) for n in (1, 2)] == [expected] * 2
