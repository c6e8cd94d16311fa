"""What a prepared file holds, as text: the documents of a sequence, or each of its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from waferstream.core.errors import ConfigError, DataError
from waferstream.preparation.sequences import FEATURES, PACKED_FEATURES
from waferstream.preparation.tokenizer import Tokenizer, open_tokenizer
from waferstream.preparation.written import files_of, read_manifest

_WINDOW = 2048
"""Tokens of a corpus that are shown together, where its folder does not say how many."""


@dataclass(frozen=True)
class Sequence:
    """One sequence, and the tokenizer that reads it."""

    file: Path
    number: int
    rows: np.ndarray
    """Features by tokens, int."""
    tokenizer: Tokenizer

    def documents(self) -> list[dict[str, Any]]:
        """Return a row for each document: its place, its tokens and losses, its text."""
        starts = np.flatnonzero(self._begins()).tolist()
        found = []
        for start, stop in zip(starts, [*starts[1:], self.rows.shape[1]], strict=True):
            part = self.rows[:, start:stop]
            text = self.tokenizer.decode([*map(int, part[0]), int(part[2, -1])])
            losses = int(part[1].sum())
            found.append({"place": start, "tokens": stop - start, "losses": losses, "text": text})
        return found

    def tokens(self) -> list[dict[str, Any]]:
        """Return a row for each token."""
        names = PACKED_FEATURES[: len(self.rows)]
        return [
            {
                "place": place,
                "token": repr(self.tokenizer.decode([int(column[0])])),
                "next": repr(self.tokenizer.decode([int(column[2])])),
                **dict(zip(names, map(int, column), strict=True)),
            }
            for place, column in enumerate(self.rows.T)
        ]

    def _begins(self) -> np.ndarray:
        """Return at which tokens a document begins; all padding counts as one."""
        begins: np.ndarray = np.arange(self.rows.shape[1]) == 0
        if len(self.rows) == len(PACKED_FEATURES):
            is_padding = (self.rows[1] == 0) & (self.rows[3] == 0)
            goes_on = is_padding & np.concatenate([[False], is_padding[:-1]])
            begins = (self.rows[4] == 0) & ~goes_on
        return begins


def read_sequence(place: Path, number: int, tokenizer: str | None = None) -> Sequence:
    """Read a sequence of a folder or of a file.

    Args:
        place: What preparation has written.
        number: Which sequence, from 0 on.
        tokenizer: Its folder or file; by default the one that the folder names.

    Raises:
        ConfigError: There is no such sequence, or no tokenizer is known.
        DataError: There is no file, or it holds no sequences of tokens.
    """
    about = read_manifest(place if place.is_dir() else place.parent) or {}
    named = tokenizer or about.get("tokenizer")
    if named is None:
        raise ConfigError(
            "the tokens need their tokenizer to be read",
            code="tokenizer-not-named",
            where=str(place),
            remedy="name it by --tokenizer",
        )
    opened = open_tokenizer(named)
    length, before = int(about.get("max_sequence_length", _WINDOW)), 0
    for path in files_of(place):
        with h5py.File(path, "r") as file:
            count = _count(path, file, length)
            if number < before + count:
                return Sequence(path, number, _rows(file, number - before, length), opened)
        before += count
    raise ConfigError(
        "the sequence must exist",
        code="no-such-sequence",
        where=str(place),
        value=number,
        rule=f"from 0 to {before - 1}",
    )


def _count(path: Path, file: h5py.File, length: int) -> int:
    """Return the sequences of a file; DataError if it holds none."""
    data = file.get("data")
    if data is None or not (data.ndim == 1 or (data.ndim == 3 and len(FEATURES) <= data.shape[1])):
        raise DataError(
            "the file must hold sequences of tokens",
            code="not-a-token-file",
            where=str(path),
            value=f"it has {', '.join(file) or 'nothing'}",
            rule="a dataset 'data' of features by tokens, or one run of tokens",
        )
    return len(data) if data.ndim == 3 else -(-(len(data) - 1) // length)


def _rows(file: h5py.File, number: int, length: int) -> np.ndarray:
    data = file["data"]
    if data.ndim == 3:
        return np.asarray(data[number])
    run = data[number * length : (number + 1) * length + 1]
    return np.stack([run[:-1], np.ones_like(run[1:]), run[1:]])
