"""A dataset is a function of its texts and recipe: not of processes, nor of interruptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from modelzoo.data.language.hdf5 import GptHDF5MapDataProcessor
from tests.support.errors import raises
from waferstream.core.errors import ConfigError, DataError
from waferstream.preparation.preparing import prepare
from waferstream.preparation.recipe import Layout, Recipe
from waferstream.preparation.viewing import read_sequence
from waferstream.preparation.written import MANIFEST
from waferstream.workload.data import Batch, packing_of
from waferstream.workload.packing import Packing

TEXTS = ["a short one", "another, which is longer than that", "x", "fourth " * 9, "the last"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    records = [{"text": text, "question": "why? "} for text in TEXTS]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    return path


def recipe(lines: Path, **keys: Any) -> Recipe:
    defaults = {"output_dir": lines.parent / "out", "max_sequence_length": 32, "processes": 1}
    return Recipe(**{"sources": (str(lines),), **defaults, **keys})


def content(made: Recipe) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(made.output_dir.glob("*.h5"))}


def read(made: Recipe, count: int, **keys: Any) -> Batch:
    section = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(made.output_dir)}
    keys = {**section, "batch_size": count, **keys}
    return GptHDF5MapDataProcessor.model_validate(keys).source().batch(0)


def test_processes_write_the_files_of_one(lines: Path) -> None:
    alone = recipe(lines, bytes_per_file=100)
    side_by_side = recipe(lines, bytes_per_file=100, processes=2, output_dir=lines.parent / "other")
    assert prepare(alone) == prepare(side_by_side)
    assert len(content(alone)) > 2
    assert content(alone) == content(side_by_side)


def test_interrupted_command_goes_on(lines: Path) -> None:
    """Files that are there are not written again; a missing one gets the same bytes."""
    made = recipe(lines, bytes_per_file=100)
    packing = prepare(made)
    before = content(made)
    (made.output_dir / "part_00001.h5").unlink()
    kept = (made.output_dir / "part_00000.h5").stat().st_mtime_ns
    steps: list[tuple[int, int]] = []
    assert prepare(made, lambda done, of_all: steps.append((done, of_all))) == packing
    assert content(made) == before
    assert (made.output_dir / "part_00000.h5").stat().st_mtime_ns == kept
    assert steps == [(len(before) - 1, len(before)), (len(before), len(before))]


@pytest.mark.parametrize("change", [{"layout": "padded"}, {"end_token": "x"}])
def test_folder_of_another_dataset_is_refused(lines: Path, change: dict[str, Any]) -> None:
    prepare(recipe(lines))
    with raises(ConfigError, "folder-of-another-dataset") as caught:
        prepare(recipe(lines, **change))
    assert next(iter(change)) in str(caught.value.value)


def test_changed_source_is_refused(lines: Path) -> None:
    made = recipe(lines)
    prepare(made)
    lines.write_text(lines.read_text() * 2)
    with raises(ConfigError, "folder-of-another-dataset") as caught:
        prepare(made)
    assert caught.value.value == "files differ"
    (made.output_dir / MANIFEST).unlink()
    with raises(ConfigError, "folder-of-another-dataset"):
        prepare(made)


def test_packed_documents_are_read_with_their_spans(lines: Path) -> None:
    packing = prepare(recipe(lines))
    assert packing == Packing(4, 7, sum(map(len, TEXTS)), 32)
    batch = read(recipe(lines), packing.num_sequences, use_vsl=True)
    assert int(batch["attention_mask"].sum()) == packing.num_tokens
    starts = batch["attention_mask"].bool() & (batch["position_ids"] == 0)
    assert int(starts.sum()) == packing.num_documents


def test_data_processor_says_how_full_its_sequences_are(lines: Path) -> None:
    """Where it reads all of them alike."""
    made = recipe(lines, layout="padded")
    keys = {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 1}
    section = {**keys, "data_dir": str(made.output_dir)}
    assert packing_of(section, "data") is None
    assert prepare(made) == packing_of(section, "data")
    assert packing_of({**section, "data_subset": "0.0-0.5"}, "data") is None
    mixture = [{"data_dir": str(made.output_dir), "weight": 1}]
    assert packing_of({**keys, "mixture": mixture}, "data") is None


@pytest.mark.parametrize("layout", ["joined", "padded", "corpus"])
def test_other_layouts_are_read_as_they_are(lines: Path, layout: Layout) -> None:
    prepare(recipe(lines, layout=layout))
    keys = {"max_sequence_length": 32} if layout == "corpus" else {}
    batch = read(recipe(lines), 3, **keys)
    counted = batch["attention_mask"] == 1
    within = counted[:, 1:]
    assert torch.equal(batch["labels"][:, :-1][within], batch["input_ids"][:, 1:][within])


def test_prompt_has_no_loss(lines: Path) -> None:
    prepare(recipe(lines, prompt_key="question", layout="padded"))
    batch = read(recipe(lines), 1)
    assert batch["attention_mask"][0].sum() == len(TEXTS[0]) + 1
    assert batch["attention_mask"][0, : len("why?")].sum() == 0
    with raises(ConfigError, "not-allowed"):
        recipe(lines, prompt_key="question", layout="corpus")


def test_tokenizer_that_does_not_know_the_text_is_refused(lines: Path) -> None:
    (lines.parent / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nlast")
    made = recipe(lines, tokenizer=str(lines.parent), end_token="[SEP]")
    with raises(ConfigError, "tokenizer-does-not-fit"):
        prepare(made)
    prepare(made.model_copy(update={"most_unknown": 1.0, "output_dir": lines.parent / "any"}))


def test_sources_without_a_document_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    with raises(DataError, "no-documents"):
        prepare(recipe(tmp_path / "a.jsonl"))
    with raises(DataError, "data-file-not-found"):
        prepare(recipe(tmp_path / "b.jsonl"))


def test_sequences_are_shown_as_text(lines: Path) -> None:
    made = recipe(lines)
    prepare(made)
    rows = [row for n in range(4) for row in read_sequence(made.output_dir, n).documents()]
    texts = [row["text"].rstrip("\0") for row in rows if row["losses"]]
    assert {TEXTS[0], TEXTS[2], TEXTS[4]} < set(texts)
    (first, *_) = read_sequence(made.output_dir, 0).tokens()
    assert first["token"] == repr(TEXTS[0][0])
    with raises(ConfigError, "no-such-sequence"):
        read_sequence(made.output_dir, 4)
