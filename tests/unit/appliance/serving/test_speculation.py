"""Tokens that are proposed: what followed before, and what a request predicts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.serving.speculation import NGRAM, Lookup, Prediction

TOKENS = st.lists(st.integers(0, 2), max_size=40)


@given(TOKENS, st.lists(st.integers(1, 8), max_size=8))
def test_lookup_returns_what_followed_last(tokens: list[int], lengths: list[int]) -> None:
    """However many tokens come between two proposals."""
    lookup, end = Lookup(), 0
    for length in lengths:
        end += length
        so_far = tokens[:end]
        places = [
            place
            for place in range(NGRAM, len(so_far))
            if so_far[place - NGRAM : place] == so_far[-NGRAM:]
        ]
        expected = so_far[places[-1] :][:4] if places else []
        assert lookup.propose(so_far, 4) == tuple(expected)


def followed(tokens: Sequence[int], answer: Sequence[int]) -> Prediction:
    prediction = Prediction(tokens)
    for token in answer:
        prediction.follow(token)
    return prediction


@pytest.mark.parametrize(
    ("answer", "accepted", "proposed"),
    [
        ([], 0, (0, 1)),
        ([0, 1], 2, (2, 3)),
        ([0, 1, 9], 2, ()),
        ([0, 1, 9, 2, 3], 2, ()),
        ([0, 1, 9, 2, 3, 4], 2, (5, 6)),  # a token that comes in between
        ([0, 1, 4, 5, 6], 2, (7,)),  # tokens that are left out
        ([0, 1, 2, 0, 1, 2], 3, ()),  # nothing that was before
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, ()),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8], 8, ()),
    ],
)
def test_prediction_is_followed(
    answer: list[int], accepted: int, proposed: tuple[int, ...]
) -> None:
    prediction = followed(range(8), answer)
    assert prediction.num_accepted == accepted
    assert prediction.propose(2) == proposed


@given(TOKENS, TOKENS)
def test_each_token_of_a_prediction_is_accepted_or_rejected(
    tokens: list[int], answer: list[int]
) -> None:
    prediction = followed(tokens, answer)
    assert 0 <= prediction.num_accepted <= min(len(tokens), len(answer))
    assert prediction.num_accepted + prediction.num_rejected == len(tokens)


@given(TOKENS)
def test_right_prediction_is_accepted_wholly(tokens: list[int]) -> None:
    assert followed(tokens, tokens).num_rejected == 0
