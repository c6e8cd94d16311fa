"""Text files with a document of prepared tokens in each line, read on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from modelzoo.data.source import located, starts_of_parts
from waferstream.core.errors import DataError
from waferstream.core.units import MIB

_BLOCK = 16 * MIB
_NEWLINE = ord("\n")
_IS_SPACE = np.zeros(256, dtype=bool)
_IS_SPACE[list(b" \t\n\r\x0b\x0c")] = True  # what bytes.split() takes for white space


@dataclass(frozen=True)
class LineFile:
    """A file with the places of its lines; it is open only during a read."""

    path: Path
    ends: np.ndarray
    """Byte after each line, after a 0."""
    num_words: np.ndarray
    """Words of each line."""

    def read(self, line: int) -> list[str]:
        """Return the words of a line; DataError if the file cannot be read."""
        try:
            with self.path.open("rb") as file:
                file.seek(int(self.ends[line]))
                text = file.read(int(self.ends[line + 1] - self.ends[line]))
            return [word.decode("utf-8") for word in text.split()]
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(self.path, error) from error


class TokenLines:
    """Lines of several files, one file after the other."""

    def __init__(self, files: Sequence[tuple[Path, int]]) -> None:
        """Find the lines of files, of which each must have the stated number of lines.

        Raises:
            DataError: A file cannot be read, or has another number of lines.
        """
        self._files = [_inspected(path) for path, _ in files]
        for file, (path, stated) in zip(self._files, files, strict=True):
            if len(file.num_words) != stated:
                raise DataError(
                    "a file must have the stated number of lines",
                    code="line-count-mismatch",
                    where=str(path),
                    value=f"{len(file.num_words)} lines, {stated} stated",
                    remedy="write the file again; it may be a partial copy",
                )
        self._starts = starts_of_parts([len(file.num_words) for file in self._files])
        self.num_words = np.concatenate([file.num_words for file in self._files])
        """Words of each line."""

    def read(self, line: int) -> list[str]:
        """Return the words of a line."""
        (part,), (inside,) = located(self._starts, np.array([line]))
        words: list[str] = self._files[part].read(int(inside))
        return words


def _inspected(path: Path) -> LineFile:
    """Find the lines of a file, and count their words."""
    ends, words = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
    size, num_words, was_space = 0, 0, True
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                characters = np.frombuffer(block, dtype=np.uint8)
                is_space = _IS_SPACE[characters]
                before = np.concatenate([[was_space], is_space[:-1]])
                begun = num_words + np.cumsum(before & ~is_space)
                (lines,) = np.nonzero(characters == _NEWLINE)
                ends.append(lines + size + 1)
                words.append(begun[lines])
                size, num_words, was_space = size + len(block), int(begun[-1]), bool(is_space[-1])
    except OSError as error:
        raise _unreadable(path, error) from error
    if ends[-1].size == 0 or ends[-1][-1] != size:  # the last line has no end
        ends.append(np.array([size]))
        words.append(np.array([num_words]))
    return LineFile(path, np.concatenate(ends), np.diff(np.concatenate(words)))


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        "the file must be readable text",
        code="data-file-unreadable",
        where=str(path),
        value=error,
    )
