"""Tokenizers of Hugging Face: the text of an answer piece by piece, ends, and prompts as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.serving.models.byte_level import SPLITTINGS, byte_level_tokenizer
from waferstream.serving.models.tokenizer import TokenDecoder, TokenizedText

LETTERS = "▁abcdeParis."


def sentence_pieces() -> Any:
    """Return a tokenizer as that of LLaMA 2: words begin with ▁, other characters are bytes."""
    vocabulary = {"<unk>": 0}
    for token in (*(f"<0x{byte:02X}>" for byte in range(256)), *dict.fromkeys(LETTERS), "▁Paris"):
        vocabulary.setdefault(token, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def text_of(tokenizer: Any, tokens: Sequence[int], prompt: Sequence[int] = ()) -> str:
    decoder = TokenDecoder(tokenizer, prompt)
    return "".join(map(decoder.feed, tokens)) + decoder.end()


@given(st.text("ab é日本語😀", max_size=30))
def test_pieces_are_the_whole_text(text: str) -> None:
    """Of characters that are bytes of their own, too."""
    tokenizer = sentence_pieces()
    tokens = tokenizer.encode(text).ids
    assert text_of(tokenizer, tokens) == tokenizer.decode(tokens)


def test_space_before_an_answer_is_kept() -> None:
    tokenizer = sentence_pieces()
    prompt = tokenizer.encode("abc").ids
    assert text_of(tokenizer, [tokenizer.token_to_id("▁Paris")], prompt) == " Paris"


@given(st.text(max_size=30))
def test_pieces_of_bytes_are_the_whole_text(text: str) -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = byte_level_tokenizer(vocabulary, [], SPLITTINGS["smollm"], special=[])
    tokens = tokenizer.encode(text).ids
    assert text_of(tokenizer, tokens) == text


def write(folder: Path, **config: Any) -> Any:
    tokenizer = sentence_pieces()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    (folder / "config.json").write_text(json.dumps(config))
    return tokenizer


@pytest.mark.parametrize(("given", "ends"), [(0, {0}), ([0, 7], {0, 7}), (None, set())])
def test_ends_are_those_of_the_files(given: object, ends: set[int], tmp_path: Path) -> None:
    """Token 0 is one, too."""
    write(tmp_path, eos_token_id=given).save(str(tmp_path / "tokenizer.json"))
    assert TokenizedText.of_folder(tmp_path).ends == ends


def test_prompts_are_neither_cut_nor_filled(tmp_path: Path) -> None:
    """Whatever a training has saved."""
    tokenizer = write(tmp_path)
    whole = tuple(tokenizer.encode("abcabcabc").ids)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=30)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert TokenizedText.of_folder(tmp_path).encode("abcabcabc") == whole


def test_vocabulary_counts_up_to_the_largest_token(tmp_path: Path) -> None:
    """There may be holes."""
    tokenizer = write(tmp_path)
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    saved = json.loads(path.read_text())
    saved["model"]["vocab"]["z"] = 999
    path.write_text(json.dumps(saved))
    assert TokenizedText.of_folder(tmp_path).vocabulary == 1000


def test_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with raises(ConfigError, "tokenizer-not-readable"):
        TokenizedText.of_folder(tmp_path)
