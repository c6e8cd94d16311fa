"""Documents as rows of token sequences, in each of the layouts.

Packing is best fit by falling length: each document goes where it leaves the least room (Krell et
al. 2021, "Efficient sequence packing without cross-contamination", has the problem and its history;
Johnson 1973 the bound: at most 22 % more sequences than needed, and far fewer for many documents).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from waferstream.preparation.recipe import Layout

FEATURES = ("input_ids", "attention_mask", "labels")
PACKED_FEATURES = (*FEATURES, "attention_span", "position_ids")
"""Of documents of any length, packed into one sequence: how many later tokens of its document may
read a token, and the position of each token in its document."""


@dataclass(frozen=True)
class Tokens:
    """A document as tokens, and which of them have a loss."""

    ids: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, part: slice) -> Tokens:
        return Tokens(self.ids[part], self.counts[part])


@dataclass(frozen=True)
class Sequences:
    """What a file holds: int32 rows (sequences, features, length), or a run of tokens."""

    rows: np.ndarray
    num_documents: int
    """Parts that attend to themselves alone."""
    num_tokens: int
    """Places that hold a document's token, and no padding."""


def arranged(documents: Sequence[Tokens], layout: Layout, length: int, padding: int) -> Sequences:
    """Return documents in a layout.

    Args:
        documents: In the order in which they were read.
        layout: How they lie in sequences.
        length: Tokens of a sequence.
        padding: Token of places without a document.
    """
    if layout == "corpus":
        run = np.concatenate([np.empty(0, np.int32), *(each.ids for each in documents)])
        return Sequences(run.astype(np.int32), len(documents), len(run))
    if layout == "joined":
        empty = Tokens(np.empty(0, np.int32), np.empty(0, bool))
        documents = [_joined([empty, *documents])]
    parts = [part for document in documents for part in _parts(document, length)]
    sizes = [len(part) - 1 for part in parts]
    places = fitted(sizes, length) if layout == "packed" else [[n] for n in range(len(parts))]
    features = PACKED_FEATURES if layout == "packed" else FEATURES
    rows = np.zeros((len(places), len(features), length), dtype=np.int32)
    rows[:, (0, 2)] = padding
    for row, numbers in zip(rows, places, strict=True):
        _fill(row, [parts[number] for number in numbers])
    return Sequences(rows, len(parts), sum(sizes))


def fitted(sizes: Sequence[int], length: int) -> list[list[int]]:
    """Return the numbers of the parts of each sequence, in order.

    Args:
        sizes: Tokens of each part, from 1 to ``length``.
        length: Tokens of a sequence.
    """
    rooms: list[tuple[int, int]] = []  # what a sequence has left, and its number
    found: list[list[int]] = []
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        place = bisect_left(rooms, (sizes[number], -1))
        if place == len(rooms):
            found.append([])
            room, sequence = length, len(found) - 1
        else:
            room, sequence = rooms.pop(place)
        found[sequence].append(number)
        if room > sizes[number]:
            insort(rooms, (room - sizes[number], sequence))
    return sorted(sorted(numbers) for numbers in found)


def _joined(documents: Sequence[Tokens]) -> Tokens:
    ids, counts = ([getattr(d, name) for d in documents] for name in ("ids", "counts"))
    return Tokens(np.concatenate(ids), np.concatenate(counts))


def _parts(document: Tokens, length: int) -> Iterator[Tokens]:
    """Yield parts of ``length`` + 1 tokens at most, in which each token is predicted once."""
    for start in range(0, len(document) - 1, length):
        yield document[start : start + length + 1]


def _fill(row: np.ndarray, parts: Sequence[Tokens]) -> None:
    """Write parts side by side into a row (features, length)."""
    start = 0
    for part in parts:
        size = len(part) - 1
        place = slice(start, start + size)
        row[0, place], row[1, place], row[2, place] = part.ids[:-1], part.counts[1:], part.ids[1:]
        if len(row) == len(PACKED_FEATURES):
            row[3, place], row[4, place] = np.arange(size)[::-1], np.arange(size)
        start += size
