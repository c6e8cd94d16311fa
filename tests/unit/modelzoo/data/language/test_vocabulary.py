"""Text becomes the tokens that transformers' tokenizer of BERT finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import BertWordPieceTokenizer

from modelzoo.data.language.vocabulary import Vocabulary, WordPieces

TOKENS = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##a", "a", "b", "e", ".", ",",
    "$", "'", "-", "café", "cafe", "##s", "東", "the", "The",
]  # fmt: skip
TEXTS = (
    "unaffable",
    "una, the The  THE\tb.",
    "Café cafés cafe\u0301",
    "a東b a-b a$b it's",
    "affable " + "a" * 200 + " " + "a" * 201,
    "b\u00a0b\u0000b\u200bb \ufffd",
    "a\x0bb a\x1cb a\x85b a\u2028b a\u3000b a\rb",
    "",
)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("text", TEXTS)
def test_tokens_equal_those_of_transformers(text: str, lower: bool, tmp_path: Path) -> None:
    """Accents, punctuation, Chinese characters, long words and characters of control."""
    file = tmp_path / "vocabulary.txt"
    file.write_text("\n".join(TOKENS) + "\n")
    numbers = {token: number for number, token in enumerate(TOKENS)}
    theirs = BertWordPieceTokenizer(numbers, lowercase=lower, strip_accents=lower)
    theirs._tokenizer.model.max_input_chars_per_word = 200
    expected = theirs.encode(text, add_special_tokens=False).ids
    found = WordPieces(Vocabulary(str(file), "[UNK]", lower)).tokens(text)
    if lower:  # theirs lists "The" and "the", ours both as the latter
        expected = [numbers["The"] if each == numbers["the"] else each for each in expected]
        expected = [numbers["cafe"] if each == numbers["café"] else each for each in expected]
    assert found == expected
