"""Every token of a document is predicted once, in any layout; packing leaves little room."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.preparation.recipe import Layout
from waferstream.preparation.sequences import Tokens, arranged, fitted

LENGTH, PADDING = 8, 99
LAYOUTS: tuple[Layout, ...] = ("packed", "joined", "padded")
sizes = st.lists(st.integers(2, 30), min_size=1, max_size=20)


def documents(lengths: list[int]) -> list[Tokens]:
    """Documents whose tokens are counted over all of them."""
    ends = np.cumsum(lengths)
    return [
        Tokens(np.arange(end - length, end, dtype=np.int32), np.ones(length, bool))
        for length, end in zip(lengths, ends, strict=True)
    ]


def predicted(rows: np.ndarray) -> list[int]:
    """Return the labels that count, which follow their input."""
    counts = rows[:, 1] == 1
    assert (rows[:, 2][counts] == rows[:, 0][counts] + 1).all()
    return sorted(rows[:, 2][counts].tolist())


@given(sizes)
def test_every_token_but_the_first_is_predicted_once(lengths: list[int]) -> None:
    found = documents(lengths)
    firsts = {int(each.ids[0]) for each in found}
    later = [token for token in range(sum(lengths)) if token not in firsts]
    for layout in ("packed", "padded"):
        assert predicted(arranged(found, layout, LENGTH, PADDING).rows) == later
    assert predicted(arranged(found, "joined", LENGTH, PADDING).rows) == [*range(1, sum(lengths))]


@given(sizes)
def test_spans_and_positions_are_those_of_documents(lengths: list[int]) -> None:
    rows = arranged(documents(lengths), "packed", LENGTH, PADDING).rows
    for ids, counts, _, span, position in rows:
        for place in np.flatnonzero(counts):
            start, end = place - position[place], place + span[place]
            assert (np.diff(ids[start : end + 1]) == 1).all(), "one document"
            assert position[start] == span[end] == 0
        assert (span[counts == 0] == 0).all()


@given(st.lists(st.integers(1, 16), max_size=60))
def test_packed_sequences_are_not_too_long_and_mostly_full(sizes: list[int]) -> None:
    """The bound of best fit by falling length is 11/9 of the least number, and a part of one."""
    found = fitted(sizes, 16)
    assert sorted(part for parts in found for part in parts) == [*range(len(sizes))]
    assert all(sum(sizes[part] for part in parts) <= 16 for parts in found)
    assert len(found) <= 11 / 9 * -(-sum(sizes) // 16) + sum(size > 8 for size in sizes) + 1


def test_many_documents_leave_hardly_a_place_empty() -> None:
    lengths = np.random.default_rng(0).lognormal(4.5, 1.0, 3000).astype(int).clip(1, 512)
    assert lengths.sum() / (512 * len(fitted(lengths.tolist(), 512))) > 0.998


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tokens_of_prompts_are_no_labels(layout: Layout) -> None:
    counts = np.array([False, False, False, True, True])
    (row,) = arranged([Tokens(np.arange(5, dtype=np.int32), counts)], layout, LENGTH, PADDING).rows
    assert row[1].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert row[0].tolist() == [0, 1, 2, 3, *[PADDING] * 4]


def test_corpus_is_one_run() -> None:
    found = arranged(documents([3, 2]), "corpus", LENGTH, PADDING)
    assert found.rows.tolist() == [0, 1, 2, 3, 4]
    assert (found.num_documents, found.num_tokens) == (2, 5)
    assert arranged([], "corpus", LENGTH, PADDING).rows.shape == (0,)
    assert arranged([], "packed", LENGTH, PADDING).rows.shape == (0, 5, LENGTH)
