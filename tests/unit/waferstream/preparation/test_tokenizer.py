"""Tokenizers are read from the disk in any of their forms, and refused where they do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import ByteLevelBPETokenizer, Tokenizer

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.preparation.tokenizer import check_fits, open_tokenizer

TEXT = "the cat sat on the mat, and the dog on the log"
END = "<|endoftext|>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A byte-level tokenizer as transformers writes it, which names its end."""
    made = ByteLevelBPETokenizer()
    made.train_from_iterator([TEXT], vocab_size=300, special_tokens=[END], show_progress=False)
    made.save(str(tmp_path / "tokenizer.json"))
    made.save_model(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": END}}))
    return tmp_path


def test_text_comes_back_from_its_tokens(folder: Path) -> None:
    for place in (str(folder), str(folder / "tokenizer.json"), "bytes"):
        opened = open_tokenizer(place)
        (ids,) = opened.encode([TEXT])
        assert opened.decode(ids) == TEXT
        assert max(ids) < opened.vocabulary
        check_fits(opened, place, opened.vocabulary)


def test_files_of_gpt2_are_the_same_tokenizer(folder: Path) -> None:
    """Where the end is not named, it is typed."""
    expected = open_tokenizer(str(folder)).encode([TEXT])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    for place in (folder, folder / "vocab.json"):
        assert open_tokenizer(str(place)).encode([TEXT]) == expected
        with raises(ConfigError, "tokenizer-without-end"):
            check_fits(open_tokenizer(str(place)), str(place), None)
        check_fits(open_tokenizer(str(place), END), str(place), None)
    with raises(ConfigError, "end-token-unknown"):
        open_tokenizer(str(folder), "</s>")


def test_word_pieces_have_an_unknown_token(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    opened = open_tokenizer(str(tmp_path), "[SEP]")
    assert opened.encode(["The cats bark"]) == [[2, 5, 6, 7, 1, 3]]
    assert opened.encode(["the"], is_start=False) == [[5]]
    assert opened.unknown == 1


def test_tokenizer_larger_than_the_model_is_refused(folder: Path) -> None:
    opened = open_tokenizer(str(folder))
    with raises(ConfigError, "tokenizer-larger-than-model"):
        check_fits(opened, str(folder), opened.vocabulary - 1)


def test_truncation_of_a_training_is_undone(folder: Path) -> None:
    opened = Tokenizer.from_file(str(folder / "tokenizer.json"))
    opened.enable_truncation(2)
    opened.save(str(folder / "tokenizer.json"))
    assert len(open_tokenizer(str(folder)).encode([TEXT])[0]) > 2


def test_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with raises(ConfigError, "tokenizer-not-found"):
        open_tokenizer(str(tmp_path))
    with raises(ConfigError, "tokenizer-not-found"):
        open_tokenizer(str(tmp_path / "missing"))
    (tmp_path / "tokenizer.json").write_text("{}")
    with raises(ConfigError, "tokenizer-damaged"):
        open_tokenizer(str(tmp_path))
