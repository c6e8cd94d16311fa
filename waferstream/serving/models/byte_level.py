"""Tokenizers by pairs of bytes, from the tokens, the pairs and the splitting that a file names.

A text is split into words, whose bytes are joined to tokens. The patterns are those of the
tokenizer.json of the models that the names of llama.cpp stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from waferstream.core.extras import extra_package

_ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LOWER, _UPPER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}", r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_LOWER_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+"
_UPPER_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
_PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"


@dataclass(frozen=True)
class Splitting:
    """How texts are cut into words.

    Attributes:
        pattern: Of a word; that of GPT-2 if None.
        splits_digits: Whether each digit is a word, before that pattern is sought.
        composes: Whether letters and their accents are joined first (Unicode's NFC).
        takes_words: Whether a word that is a token is one, whatever its pairs are.
        begins: Whether a text begins with the token of that name, unless a file says so.
    """

    pattern: str | None = None
    splits_digits: bool = False
    composes: bool = False
    takes_words: bool = False
    begins: bool = False


SPLITTINGS: Mapping[str, Splitting] = {
    "gpt-2": Splitting(),
    "smollm": Splitting(splits_digits=True),
    "llama-bpe": Splitting(
        "|".join((_ENDING, _WORD, r"\p{N}{1,3}", _SIGNS, _REST)), takes_words=True, begins=True
    ),
    "qwen2": Splitting("|".join((_ENDING, _WORD, r"\p{N}", _SIGNS, _REST)), composes=True),
    "tekken": Splitting(
        "|".join((_LOWER_WORD, _UPPER_WORD, r"\p{N}", _PATHS, _REST)),
        takes_words=True,
        begins=True,
    ),
    "gpt-4o": Splitting(
        "|".join(
            (f"{_LOWER_WORD}{_ENDING}?", f"{_UPPER_WORD}{_ENDING}?", r"\p{N}{1,3}", _PATHS, _REST)
        )
    ),
}
"""By the name of llama.cpp (``tokenizer.ggml.pre``)."""


def byte_level_tokenizer(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, ...]],
    splitting: Splitting,
    *,
    special: Sequence[str],
    whole: Sequence[str] = (),
    begin: str | None = None,
) -> Any:
    """Return a tokenizer.

    Args:
        vocabulary: Tokens by their text.
        merges: Pairs of tokens that are one, the first ones first.
        splitting: How texts are cut into words.
        special: Tokens that are no text.
        whole: Tokens of text that are found before it is cut.
        begin: The token that begins texts, if any.
    """
    package = extra_package("tokenizers", "serve")
    model = package.models.BPE(
        vocab=dict(vocabulary), merges=list(merges), ignore_merges=splitting.takes_words
    )
    tokenizer = package.Tokenizer(model)
    if splitting.composes:
        tokenizer.normalizer = package.normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(package.pre_tokenizers, package.Regex, splitting)
    tokenizer.decoder = package.decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    tokenizer.add_tokens([package.AddedToken(each, normalized=False) for each in whole])
    if begin is not None:
        tokenizer.post_processor = package.processors.TemplateProcessing(
            single=[begin, "$A"], special_tokens=[(begin, vocabulary[begin])]
        )
    return tokenizer


def _pre_tokenizer(pre_tokenizers: Any, regex: Any, splitting: Splitting) -> Any:
    has_own = splitting.pattern is None
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=has_own)]
    if not has_own:
        steps.insert(0, pre_tokenizers.Split(regex(splitting.pattern), "isolated"))
    if splitting.splits_digits:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    return pre_tokenizers.Sequence(steps)
