"""Documents lose spans anew in each epoch, and translations are padded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from modelzoo.data.language.sequence_pairs import longest_sequence, spans
from modelzoo.data.order import draws
from tests.support.errors import raises
from waferstream.core.errors import DataError
from waferstream.workload.data import BatchSource, build_source

VOCABULARY = ["<pad>", "</s>", "<unk>", "<s>", *(f"w{number}" for number in range(4, 120))]
LAST = 120 + 8 - 1
"""Token of the first span, of eight after the vocabulary."""


def source(folder: Path, kind: str, **keys: Any) -> BatchSource:
    (folder / "vocabulary.txt").write_text("\n".join(VOCABULARY) + "\n")
    section = {
        "data_processor": f"{kind}DynamicDataProcessor",
        "src_data_dir": str(folder),
        "src_vocab_file": str(folder / "vocabulary.txt"),
        "src_max_sequence_length": 20,
        "tgt_max_sequence_length": 12,
        "shuffle": False,
        "batch_size": 2,
    }
    found: BatchSource = build_source(section | keys, "x")
    return found


def write_documents(folder: Path) -> BatchSource:
    """Two documents of 100 and 7 words."""
    lines = [" ".join(f"w{4 + place}" for place in range(length)) for length in (100, 7)]
    (folder / "a.txt").write_text("\n\n".join(lines) + "\n")
    (folder / "meta.dat").write_text("a.txt 3\n")
    lengths = {"src_max_sequence_length": 60, "tgt_max_sequence_length": 20}
    return source(folder, "T5", extra_ids=8, batch_size=3, **lengths)


def test_parts_of_a_document_restore_it(tmp_path: Path) -> None:
    """Each token is in one part; both name the spans in order, and targets begin with ``<s>``."""
    batch = write_documents(tmp_path).batch(0)
    assert (batch["decoder_input_ids"][:, 0] == VOCABULARY.index("<s>")).all()
    for row, (first, last) in enumerate(((4, 69), (70, 103), (4, 10))):
        source = batch["input_ids"][row][batch["attention_mask"][row] == 1]
        length = int(batch["decoder_attention_mask"][row].sum())
        target, end = batch["labels"][row, : length - 1], batch["labels"][row, length - 1]
        assert end == VOCABULARY.index("</s>")
        assert torch.equal(batch["decoder_input_ids"][row, 1:length], target)
        words = [part[part < len(VOCABULARY)].tolist() for part in (source, target)]
        assert all(part == sorted(part) for part in words)
        assert sorted(words[0] + words[1]) == list(range(first, last + 1))
        spans = [part[part >= len(VOCABULARY)].tolist() for part in (source, target)]
        assert spans[0] == spans[1] == list(range(LAST, LAST - len(spans[0]), -1))


def test_spans_are_drawn_anew_in_each_epoch(tmp_path: Path) -> None:
    """By the seed and the place in the stream of samples."""
    batches = write_documents(tmp_path)
    sources = [batches.batch(step)["input_ids"] for step in range(4)]
    assert not torch.equal(sources[0], sources[1])
    assert torch.equal(write_documents(tmp_path).batch(3)["input_ids"], sources[3])


def test_spans_have_the_published_shares() -> None:
    """15 % of the tokens in spans of 3; the first token stays, and the last one never does."""
    masks = np.stack([spans(100, draws(0, "test", place)) for place in range(400)])
    assert (masks.sum(1) == 15).all()
    begins = masks[:, 1:] & ~masks[:, :-1]
    assert (begins.sum(1) == 5).all()
    assert not masks[:, 0].any()
    assert masks[:, -1].all()
    shares = masks.mean(0)[10:90].reshape(8, 10).mean(1)
    assert 0.09 < shares.min() <= shares.max() < 0.17
    assert [spans(length, draws(0, "test", 0)).tolist() for length in (1, 2)] == [
        [False],
        [False, True],
    ]


def test_longest_sequence_is_that_of_the_stock_files() -> None:
    """512 and 114 tokens in t5_3B.yaml."""
    assert longest_sequence(512) == (568, 114)


def test_short_target_is_refused(tmp_path: Path) -> None:
    write_documents(tmp_path)
    with raises(DataError, "target-too-long"):
        source(tmp_path, "T5", tgt_max_sequence_length=4)


def test_translations_that_fit_are_padded(tmp_path: Path) -> None:
    """A line without words and a long one are left out."""
    (tmp_path / "en.txt").write_text("w4 other\n\nw5\nw6 w7 w8\n")
    (tmp_path / "de.txt").write_text(f"w9\nw4\n{'w4 ' * 12}\nw10 w11\n")
    (tmp_path / "meta.dat").write_text("en.txt de.txt 4\n")
    pairs = source(tmp_path, "Transformer", src_max_sequence_length=5, labels_pad_id=7)
    batch = pairs.batch(0)
    assert batch["input_ids"].tolist() == [[4, 2, 0, 0, 0], [6, 7, 8, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 0, 0]]
    assert batch["decoder_input_ids"][:, :4].tolist() == [[3, 9, 0, 0], [3, 10, 11, 0]]
    assert batch["labels"][:, :4].tolist() == [[9, 1, 7, 7], [10, 11, 1, 7]]
    assert batch["decoder_attention_mask"].sum(1).tolist() == [2, 3]


@pytest.mark.parametrize("line", ["en.txt 4", "en.txt ../de.txt 4", "en.txt de.txt 5"])
def test_wrong_lists_of_files_are_refused(line: str, tmp_path: Path) -> None:
    """One name in place of two, a file elsewhere, and another number of lines."""
    for name in ("en.txt", "de.txt"):
        (tmp_path / name).write_text("w4\n" * 4)
    (tmp_path / "meta.dat").write_text(f"{line}\n")
    with raises(DataError, "line-count-mismatch" if "5" in line else "csv-damaged"):
        source(tmp_path, "Transformer")
