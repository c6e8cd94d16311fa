"""Vocabularies: text files with a token in each line."""

from __future__ import annotations

import os
from pathlib import Path

from waferstream.core.errors import DataError


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
