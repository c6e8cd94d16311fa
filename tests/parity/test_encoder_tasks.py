"""Models train on files of their tasks as in a plain loop, on any number of systems."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from scripts import reference_loop
from tests.support.files import dataset_files
from tests.support.models.model_sections import section_of
from tests.support.models.multimodal import PATCHES, write_sequences
from tests.support.nightly import nightly
from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster
from waferstream.workload.data import build_source

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(chr(97 + number) for number in range(26))]


def words(folder: Path) -> dict[str, Any]:
    (folder / "vocabulary.txt").write_text("\n".join(_WORDS))
    files = {"data_dir": str(folder), "vocab_file": str(folder / "vocabulary.txt")}
    return {**files, "max_sequence_length": 8}


def write_pairs(folder: Path) -> dict[str, Any]:
    rows = [f"{_WORDS[4 + n]} b\t{_WORDS[5 + n]}\tneutral" for n in range(12)]
    (folder / "train.tsv").write_text("\n".join(["sentence1\tsentence2\tgold_label", *rows]))
    return {"data_processor": "MNLIDataProcessor", "is_training": True, **words(folder)}


def write_words(folder: Path) -> dict[str, Any]:
    rows = [[f"{_WORDS[4 + n]} b c", "O X O"] for n in range(12)]
    dataset_files.write_csv(folder / "a.csv", rows, ["tokens", "labels"])
    (folder / "label2id.json").write_text(json.dumps({"O": 1, "X": 2}))
    name = "BertTokenClassifierDataProcessor"
    classes = {"label_vocab_file": str(folder / "label2id.json")}
    return {"data_processor": name, **classes, **words(folder)}


def write_documents(folder: Path) -> dict[str, Any]:
    rows = [[[2, 4 + n, 3, 2, 5], [n % 2, 1], [0, 0, 0, 1, 1], [0, 3]] for n in range(12)]
    dataset_files.write_csv(
        folder / "a.csv", rows, ["input_ids", "labels", "segment_ids", "cls_indices"]
    )
    return {"data_processor": "BertSumCSVDataProcessor", "max_cls_tokens": 3, **words(folder)}


def write_lines(folder: Path) -> dict[str, Any]:
    """Write documents of T5, and a translation of each for the transformer."""
    special = ["<pad>", "</s>", "<unk>", "<s>"]
    (folder / "vocabulary.txt").write_text("\n".join([*special, *_WORDS[4:]]))
    for name, shift in (("a.txt", 0), ("b.txt", 2)):
        lines = (" ".join(_WORDS[4 + shift + n : 10 + shift + n]) for n in range(12))
        (folder / name).write_text("\n".join(lines))
    lengths = {"src_max_sequence_length": 8, "tgt_max_sequence_length": 8}
    files = {"src_data_dir": str(folder), "src_vocab_file": str(folder / "vocabulary.txt")}
    return {**files, **lengths}


def write_documents_of_t5(folder: Path) -> dict[str, Any]:
    section = write_lines(folder)
    (folder / "meta.dat").write_text("a.txt 12")
    return {"data_processor": "T5DynamicDataProcessor", "extra_ids": 4, **section}


def write_translations(folder: Path) -> dict[str, Any]:
    section = write_lines(folder)
    (folder / "meta.dat").write_text("a.txt b.txt 12")
    return {"data_processor": "TransformerDynamicDataProcessor", **section}


def write_images(folder: Path) -> dict[str, Any]:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 10, 14, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        place = folder / "train" / f"n{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")
    crop = {"name": "random_resized_crop", "size": [8, 12]}
    transforms = [crop, {"name": "random_horizontal_flip"}, {"name": "to_tensor"}]
    section = {"data_processor": "ImageNet1KProcessor", "transforms": transforms}
    return {**section, "data_dir": str(folder)}


def write_digits(folder: Path) -> dict[str, Any]:
    dataset_files.write_digits(folder, "train")
    section = {"data_processor": "MNISTDataProcessor", "split": "train", "batch_size": 5}
    return {**section, "data_dir": str(folder)}


def write_preferences(folder: Path) -> dict[str, Any]:
    """Write pairs of eight tokens, of which the first two are the prompt."""
    generator = np.random.default_rng(0)
    rows = generator.integers(0, 40, (12, 6, 8), dtype=np.int32)
    rows[:, (1, 4)] = (np.arange(8) > 1) & (np.arange(8) < generator.integers(4, 8, (12, 2, 1)))
    with h5py.File(folder / "a.h5", "w") as file:
        file["data"] = rows
    return {"data_processor": "DpoHDF5DataProcessor", "data_dir": str(folder)}


def write_image_text(folder: Path) -> dict[str, Any]:
    return write_sequences(folder)


def write_image_places(folder: Path) -> dict[str, Any]:
    return write_sequences(folder, [list(range(1, 1 + PATCHES))])


def write_questions(folder: Path) -> dict[str, Any]:
    """Write questions of eight tokens, and three passages of each."""
    generator = np.random.default_rng(0)
    with h5py.File(folder / "a.h5", "w") as file:
        for number, shape in enumerate([(12, 3, 8), (12, 3, 3, 8)]):
            rows = generator.integers(0, 40, shape, dtype=np.int32)
            rows[:, 1] = np.arange(8) < 4 + number
            rows[:, 2] = np.arange(8) > 2
            file[f"data_{number}"] = rows
    return {"data_processor": "DPRHDF5DataProcessor", "data_dir": str(folder)}


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("bert/classifier", write_pairs),
        *nightly(("bert/token_classifier", write_words)),
        ("bert/extractive_summarization", write_documents),
        ("vision_transformer", write_images),
        ("t5", write_documents_of_t5),
        ("transformer", write_translations),
        ("fc_mnist", write_digits),
        *nightly(("dpo", write_preferences)),
        ("llava", write_image_text),
        *nightly(("multimodal_simple", write_image_places)),
        ("dpr", write_questions),
    ],
)
def test_weights_equal_those_of_the_loop(
    name: str, write: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    data = {"shuffle_seed": 1, "batch_size": 6, **write(tmp_path)}
    assert_equals_the_loop(section_of(name), data, (1, 2))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("bert/extractive_summarization", write_documents),
        ("vision_transformer", write_images),
        pytest.param("t5", write_documents_of_t5, marks=pytest.mark.nightly),
        pytest.param("llava", write_image_text, marks=pytest.mark.nightly),
    ],
)
def test_uneven_micro_batches_equal_those_of_the_loop(
    name: str, write: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    """Of two samples, two, and one: the step is recorded for both sizes."""
    data = {"shuffle_seed": 1, **write(tmp_path), "batch_size": 5}
    assert_equals_the_loop(section_of(name), data, (3,))


def assert_equals_the_loop(
    section: dict[str, Any], data: dict[str, Any], counts: tuple[int, ...]
) -> None:
    """Check the weights of two steps on each number of systems."""
    init, source = init_config(section), build_source(data, "test")
    model = reference_loop.train(init, map(source.batch, range(2)), source.batch_size)
    expected = reference_loop.weights_sha256(model)
    for count in counts:
        assert train_on_cluster(init, Shape(count), 2, data=data) == expected
