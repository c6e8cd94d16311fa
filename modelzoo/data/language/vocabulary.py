"""Vocabularies, text files with a token in each line, and text cut into their tokens.

Words are cut into the longest pieces: Devlin et al. 2019, BERT, section 3, with the cleaning of the
published code (google-research/bert, ``tokenization.py``): words end at white space, at
punctuation, and around Chinese characters.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from waferstream.core.errors import DataError

CONTINUES = "##"
"""Start of a token that continues a word (Wu et al. 2016, WordPiece, as in BERT)."""

_LONGEST_WORD = 200
"""Characters; a longer word is unknown, as in the published code."""

_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
"""First and last characters of the Unicode blocks "CJK ideographs"."""

_SPACES = frozenset("\t\n\r")
"""Characters of control that end words; the others are left out."""

_SIGNS = frozenset("$+<=>^`|~")
"""Symbols of ASCII, which are punctuation here."""


class Vocabulary:
    """Tokens by number, which is that of the line in a file."""

    def __init__(self, file: str, unknown: str, lower: bool = False) -> None:
        """Read a file.

        Args:
            file: Its path, in which ``$NAME`` is replaced by the environment variable.
            unknown: Token that stands for all that are not listed.
            lower: Whether the tokens are put into lower case.

        Raises:
            DataError: The file cannot be read, or has no unknown token.
        """
        self.lower = lower
        self._path = path = Path(os.path.expandvars(file)).expanduser()
        try:
            tokens = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                "the vocabulary cannot be read",
                code="vocabulary-not-readable",
                where=str(path),
                value=error,
                rule="text with a token in each line",
                remedy="set the environment variable in its path, or give another path",
            ) from error
        self.size = len(tokens)
        self._numbers = {self.cased(token): number for number, token in enumerate(tokens)}
        self.unknown = self.special(unknown)

    def cased(self, token: str) -> str:
        """Return a token in lower case if the vocabulary is."""
        return token.lower() if self.lower else token

    def __contains__(self, token: str) -> bool:
        return token in self._numbers

    def number(self, token: str) -> int:
        """Return the number of a token, that of the unknown one if it is not listed."""
        return self._numbers.get(token, self.unknown)

    def special(self, token: str) -> int:
        """Return the number of a token that must be listed; DataError if it is not."""
        if self.cased(token) not in self._numbers:
            raise DataError(
                "the vocabulary must have its special tokens",
                code="special-token-missing",
                where=str(self._path),
                value=token,
            )
        return self._numbers[self.cased(token)]


class WordPieces:
    """Tokens of texts."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def tokens(self, text: str) -> list[int]:
        """Return the numbers of the tokens of a text."""
        if self._vocabulary.lower:
            text = _without_accents(text.lower())
        return [token for word in _words(text) for token in self._pieces(word)]

    def _pieces(self, word: str) -> list[int]:
        """Return the tokens of a word: at each place the longest that is listed."""
        vocabulary, pieces, start = self._vocabulary, [], 0
        if len(word) > _LONGEST_WORD:
            return [vocabulary.unknown]
        while start < len(word):
            prefix = CONTINUES if start else ""
            candidates = ((end, prefix + word[start:end]) for end in range(len(word), start, -1))
            found = next(((end, each) for end, each in candidates if each in vocabulary), None)
            if found is None:
                return [vocabulary.unknown]
            start, piece = found
            pieces.append(vocabulary.number(piece))
        return pieces


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text; each punctuation mark and Chinese character is one."""
    spaced = []
    for character in text:
        if character in _SPACES or unicodedata.category(character) == "Zs":
            spaced.append(" ")
        elif _stands_alone(character):
            spaced.append(f" {character} ")
        elif not _is_invisible(character):
            spaced.append(character)
    yield from "".join(spaced).split()


def _stands_alone(character: str) -> bool:
    place = ord(character)
    if character in _SIGNS or unicodedata.category(character).startswith("P"):
        return True
    return any(first <= place <= last for first, last in _CHINESE)


def _is_invisible(character: str) -> bool:
    """Tell whether a character is one of control or stands for a damaged one."""
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf")


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(each for each in decomposed if unicodedata.category(each) != "Mn")
