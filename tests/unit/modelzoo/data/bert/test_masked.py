"""Words become masked tokens, in every epoch others; prepared tokens stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from modelzoo.data.bert.masked import BertHDF5DataProcessor
from tests.support.errors import raises
from tests.support.files.dataset_files import write_csv
from waferstream.core.errors import ConfigError, DataError
from waferstream.workload.data import BatchSource, build_source

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *(f"w{number}" for number in range(5, 40)), "##s"]
LENGTH, MOST = 16, 6

FIRST = np.arange(6, dtype=np.int32)[:, None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty sequences of up to 16 words, with sentence pairs."""
    rows = []
    for number in range(20):
        middle = [f"w{5 + (number + place) % 35}" for place in range(13 - number % 4)]
        tokens = ["[CLS]", *middle, "Other", "[SEP]"]
        rows.append([tokens, [int(place > 8) for place in range(len(tokens))], number % 2])
    write_csv(tmp_path / "a.csv", rows, ["tokens", "segment_ids", "is_random_next"])
    (tmp_path / "vocabulary.txt").write_text("\n".join(VOCABULARY) + "\n")
    return tmp_path


def source(folder: Path, **keys: Any) -> BatchSource:
    section = {
        "data_processor": "BertCSVDynamicMaskDataProcessor",
        "data_dir": str(folder),
        "vocab_file": str(folder / "vocabulary.txt"),
        "max_sequence_length": LENGTH,
        "max_predictions_per_seq": MOST,
        "masked_lm_prob": 0.25,
        "batch_size": 10,
        "shuffle": False,
        "shuffle_seed": 1,
    }
    found: BatchSource = build_source(section | keys, "x")
    return found


def whole(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the tokens before they were masked."""
    tokens = batch["input_ids"].clone()
    for row, places in enumerate(batch["masked_lm_positions"]):
        counted = batch["masked_lm_mask"][row].bool()
        tokens[row, places[counted]] = batch["labels"][row, counted]
    return tokens


def test_labels_restore_the_words(folder: Path) -> None:
    """Padded, with the unknown token for words that are not listed."""
    batch = source(folder).batch(0)
    expected = [2, *range(6, 18), 1, 3]
    assert whole(batch)[1].tolist() == [*expected, 0]
    assert batch["attention_mask"][1].tolist() == [1] * len(expected) + [0]
    assert batch["token_type_ids"][1].tolist() == [0] * 9 + [1] * 6 + [0]
    assert batch["next_sentence_label"].tolist() == [0, 1] * 5


def test_share_of_the_tokens_is_chosen(folder: Path) -> None:
    """The rounded share of the length; never a special token, never a position twice."""
    batch = source(folder).batch(0)
    lengths = batch["attention_mask"].sum(1)
    assert batch["masked_lm_mask"].sum(1).tolist() == [round(0.25 * n) for n in lengths.tolist()]
    for row in range(10):
        count = int(batch["masked_lm_mask"][row].sum())
        places = batch["masked_lm_positions"][row, :count].tolist()
        assert places == sorted(set(places))
        assert not {2, 3} & set(batch["labels"][row, :count].tolist())
        assert not batch["labels"][row, count:].any()
    assert source(folder, max_predictions_per_seq=2).batch(0)["masked_lm_mask"].sum() == 20


def test_chosen_tokens_are_masked_replaced_or_kept(folder: Path) -> None:
    """80 %, 10 % and 10 % (Devlin et al. 2019, section 3.1), over 600 samples."""
    batch = source(folder, masked_lm_prob=0.5, batch_size=20)
    counts = torch.zeros(3)
    for step in range(30):
        found = batch.batch(step)
        shown, counted = found["input_ids"], found["masked_lm_mask"].bool()
        chosen = shown.gather(1, found["masked_lm_positions"])[counted]
        labels = found["labels"][counted]
        assert not {0, 2, 3} & set(chosen.tolist())
        kinds = (chosen == 4, (chosen != 4) & (chosen != labels), chosen == labels)
        counts += torch.tensor([kind.sum() for kind in kinds])
    torch.testing.assert_close(
        counts / counts.sum(), torch.tensor([0.8, 0.1, 0.1]), atol=0.03, rtol=0
    )


def test_every_epoch_masks_other_tokens(folder: Path) -> None:
    """A step is always the same, whatever was read before it."""
    epochs = [source(folder).batch(step) for step in (0, 2)]
    assert torch.equal(whole(epochs[0]), whole(epochs[1]))
    assert not torch.equal(epochs[0]["labels"], epochs[1]["labels"])
    again = source(folder)
    again.batch(1)
    assert torch.equal(again.batch(2)["input_ids"], epochs[1]["input_ids"])
    other = source(folder, shuffle_seed=2).batch(0)
    assert not torch.equal(other["labels"], epochs[0]["labels"])


def test_whole_words_are_masked_together(tmp_path: Path) -> None:
    """A word is its first token and those that continue it."""
    write_csv(tmp_path / "a.csv", [[["[CLS]", *["w9", "##s"] * 5, "[SEP]"]]] * 8, ["tokens"])
    (tmp_path / "vocabulary.txt").write_text("\n".join(VOCABULARY) + "\n")
    batch = source(tmp_path, mask_whole_word=True, masked_lm_prob=0.4, batch_size=8).batch(0)
    places = batch["masked_lm_positions"]
    assert "token_type_ids" not in batch
    assert batch["masked_lm_mask"].sum(1).tolist() == [6] * 8
    assert torch.equal(places[:, 1::2], places[:, ::2] + 1)
    assert (places[:, ::2] % 2 == 1).all()


def test_labels_need_not_be_gathered(folder: Path) -> None:
    """One label at every position, and a mask."""
    gathered, plain = source(folder).batch(0), source(folder, gather_mlm_labels=False).batch(0)
    assert "masked_lm_positions" not in plain
    chosen = plain["masked_lm_mask"].bool()
    assert torch.equal(plain["labels"][chosen], whole(gathered)[chosen])
    assert not plain["labels"][~chosen].any()


def test_long_sequences_are_cut_without_sentence_pairs(folder: Path) -> None:
    """A pair would lose its second sentence."""
    with raises(DataError, "sequence-too-long"):
        source(folder, max_sequence_length=8).batch(0)
    cut = source(folder, max_sequence_length=8, disable_nsp=True).batch(0)
    assert cut["input_ids"].shape == (10, 8)
    assert "next_sentence_label" not in cut


def test_missing_words_and_columns_are_refused(folder: Path) -> None:
    """The vocabulary, its special tokens, and the columns of the features."""
    with raises(DataError, "vocabulary-not-readable"):
        source(folder, vocab_file="$NO_SUCH_FOLDER/vocabulary.txt")
    with raises(DataError, "special-token-missing"):
        source(folder, mask_token="[HIDDEN]")
    with raises(DataError, "csv-column-missing"):
        source(folder, data_processor="BertCSVDataProcessor", **dict.fromkeys(UNUSED))


UNUSED = ("vocab_file", "max_sequence_length", "max_predictions_per_seq", "masked_lm_prob")


def test_prepared_features_are_columns(tmp_path: Path) -> None:
    """Labels of -100 do not count where no weights say so."""
    section = {"data_processor": "BertCSVDataProcessor", "data_dir": str(tmp_path), "batch_size": 2}
    rows = [[[5, 4], [1, 1], [-100, 9]], [[7, 0], [1, 0], [7, -100]]]
    write_csv(tmp_path / "a.csv", rows, ["input_ids", "attention_mask", "labels"])
    batch = build_source(section, "x").batch(0)
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[5, 4], [7, 0]],
        "attention_mask": [[1, 1], [1, 0]],
        "labels": [[0, 9], [7, 0]],
        "masked_lm_mask": [[0, 1], [1, 0]],
    }


def test_prepared_features_of_sentence_pairs(tmp_path: Path) -> None:
    """Left out on request; rows of different lengths are refused."""
    columns = ["input_ids", "attention_mask", "labels", "masked_lm_weights"]
    columns += ["masked_lm_positions", "token_type_ids", "next_sentence_label"]
    row = [[5, 4], [1, 1], [9], [1.0], [1], [0, 1], 1]
    write_csv(tmp_path / "a.csv", [row, row], columns)
    section = {"data_processor": "BertCSVDataProcessor", "data_dir": str(tmp_path), "batch_size": 2}
    batch = build_source(section, "x").batch(0)
    assert batch["next_sentence_label"].tolist() == [1, 1]
    assert batch["masked_lm_mask"].tolist() == [[1], [1]]
    assert "token_type_ids" not in build_source(section | {"disable_nsp": True}, "x").batch(0)
    write_csv(tmp_path / "b.csv", [[[5], *row[1:]]], columns)
    with raises(DataError, "sequence-lengths-differ"):
        build_source(section | {"batch_size": 3}, "x").batch(0)


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
