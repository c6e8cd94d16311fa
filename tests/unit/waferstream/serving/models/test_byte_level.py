"""Texts are cut into words as in the tokenizers that the names of llama.cpp stand for."""

from __future__ import annotations

import pytest

from waferstream.serving.models.byte_level import SPLITTINGS, byte_level_tokenizer

TEXT = "I'LL go; ÉtéHello 12345 a/b\n\n  x"

WORDS = {
    "gpt-2": "I|'|LL| go|;| ÉtéHello| 12345| a|/|b|\n\n | x",
    "smollm": "I|'|LL| go|;| ÉtéHello| |1|2|3|4|5| a|/|b|\n\n | x",
    "llama-bpe": "I|'LL| go|;| ÉtéHello| |123|45| a|/b|\n\n| | x",
    "qwen2": "I|'LL| go|;| ÉtéHello| |1|2|3|4|5| a|/b|\n\n| | x",
    "tekken": "I|'LL| go|;| Été|Hello| |1|2|3|4|5| a|/b|\n\n| | x",
    "gpt-4o": "I'LL| go|;| Été|Hello| |123|45| a|/b|\n\n| | x",
}


@pytest.mark.parametrize("name", SPLITTINGS)
def test_words_are_those_of_the_published_pattern(name: str) -> None:
    tokenizer = byte_level_tokenizer({"a": 0}, [], SPLITTINGS[name], special=[])
    pieces = tokenizer.pre_tokenizer.pre_tokenize_str(TEXT)
    assert "|".join(TEXT[start:end] for _, (start, end) in pieces) == WORDS[name]


def test_splitting_of_qwen_is_that_of_transformers() -> None:
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    assert SPLITTINGS["qwen2"].pattern == PRETOKENIZE_REGEX


def test_text_begins_with_a_token_and_has_whole_ones() -> None:
    """A word that is a token needs no pairs."""
    vocabulary = {"a": 0, "b": 1, "ab": 2, "<b>": 3, "[a]": 4}
    tokenizer = byte_level_tokenizer(
        vocabulary, [], SPLITTINGS["llama-bpe"], special=["<b>"], whole=["[a]"], begin="<b>"
    )
    assert tokenizer.encode("ab[a]a").ids == [3, 2, 4, 0]
    assert tokenizer.encode("ab", add_special_tokens=False).ids == [2]
