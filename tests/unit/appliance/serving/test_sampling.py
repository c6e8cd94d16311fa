"""How a token is drawn: shares, cuts, penalties, and the numbers that state it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.serving.sampling import check_tokens, draw
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.serving import Request, Sampling, TokenDrawn

SCORES = np.log(np.array([0.1, 0.4, 0.3, 0.2], np.float32))


def drawn(
    sampling: Sampling,
    position: int = 0,
    scores: np.ndarray = SCORES,
    *,
    answer: Sequence[int] = (),
    ends: frozenset[int] = frozenset(),
    num_best: int = 0,
) -> TokenDrawn:
    prompt = (0,) * position
    return draw(
        scores, Request("a", prompt, 9, sampling, ends, num_best=num_best), (*prompt, *answer)
    )


def test_any_temperature_above_zero_keeps_the_order() -> None:
    """Scores that a tiny one divides are no ties at infinity."""
    scores = np.array([1.0, 3.0, 2.0], np.float32)
    assert drawn(Sampling(1, temperature=1e-308), scores=scores).token == 1


def test_zero_temperature_takes_the_best() -> None:
    found = drawn(Sampling(1, temperature=0), 5)
    assert found.token == 1
    assert found.logprob == pytest.approx(np.log(0.4))


def test_first_of_equal_scores_is_the_best() -> None:
    assert drawn(Sampling(1, temperature=0), scores=np.zeros(4, np.float32)).token == 0


def test_seed_and_position_state_the_token() -> None:
    """The same twice, others at other positions and for other seeds."""

    def tokens(seed: int) -> list[int]:
        return [drawn(Sampling(seed), position).token for position in range(50)]

    assert tokens(1) == tokens(1) != tokens(2)
    assert len(set(tokens(1))) == 4


def test_shares_are_those_of_the_softmax() -> None:
    counts = Counter(drawn(Sampling(3), position).token for position in range(4000))
    shares = [counts[token] / 4000 for token in range(4)]
    assert shares == pytest.approx([0.1, 0.4, 0.3, 0.2], abs=0.03)


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(1, top_k=2), {1, 2}),
        (Sampling(1, top_k=1), {1}),
        (Sampling(1, top_p=0.4), {1}),
        (Sampling(1, top_p=0.41), {1, 2}),
        (Sampling(1, top_p=0.75), {1, 2, 3}),
        (Sampling(1, top_k=3, top_p=0.5), {1, 2}),
        (Sampling(1, top_p=1e-6), {1}),
    ],
)
def test_cuts_keep_the_best(sampling: Sampling, kept: set[int]) -> None:
    """The fewest of the best that have ``top_p`` of the first ``top_k`` together."""
    assert {drawn(sampling, position).token for position in range(300)} == kept


def test_low_temperature_is_almost_the_best() -> None:
    sampling = Sampling(1, temperature=0.01)
    assert {drawn(sampling, position).token for position in range(200)} == {1}


@given(
    st.lists(st.integers(-120, 120), min_size=1, max_size=40),
    st.floats(1e-3, 1),
    st.none() | st.integers(1, 50),
    st.integers(0, 1000),
)
def test_what_is_drawn_is_among_the_fewest_best(
    values: list[int], top_p: float, top_k: int | None, seed: int
) -> None:
    """As a sort of all tokens has them."""
    scores = np.array(values, np.float32) / 4
    order = np.argsort(-scores, kind="stable")[:top_k]
    shares = np.exp(scores[order].astype(np.float64) - float(scores.max()))
    before = np.concatenate([[0], shares.cumsum()[:-1]]) / shares.sum()
    found = drawn(Sampling(seed, 1.0, top_p, top_k), scores=scores).token
    assert found in order[before < top_p + 1e-9]


def test_best_tokens_are_told_whatever_is_drawn() -> None:
    """Their logarithms are those of the model alone."""
    found = drawn(Sampling(1, 2.0, bias=((0, 100.0),)), num_best=3)
    assert found.token == 0
    assert [token for token, _ in found.best] == [1, 2, 3]
    assert np.exp([logprob for _, logprob in found.best]) == pytest.approx([0.4, 0.3, 0.2])
    assert found.logprob == pytest.approx(np.log(0.1))
    assert len(drawn(Sampling(1), num_best=20).best) == 4


GREEDY = Sampling(1, temperature=0)


@pytest.mark.parametrize(
    ("changes", "answer", "token"),
    [
        ({"presence_penalty": 0.3}, [1], 2),  # 0.4 / e^0.3 < 0.3
        ({"presence_penalty": 0.2}, [1, 1, 1], 1),
        ({"frequency_penalty": 0.2}, [1], 1),
        ({"frequency_penalty": 0.2}, [1, 1], 2),
        ({"frequency_penalty": -2.0}, [0], 0),
        ({"bias": ((1, -100.0), (2, -100.0))}, [], 3),
    ],
)
def test_penalties_and_bias_change_what_is_best(
    changes: dict[str, Any], answer: list[int], token: int
) -> None:
    """Tokens of the prompt, all 0, are not counted."""
    assert drawn(replace(GREEDY, **changes), 5, answer=answer).token == token


def test_end_does_not_come_before_the_least_tokens() -> None:
    sampling = replace(GREEDY, min_tokens=2)
    ends = frozenset({1})
    assert drawn(sampling, answer=[3], ends=ends).token == 2
    assert drawn(sampling, answer=[3, 3], ends=ends).token == 1


def test_token_that_the_model_has_not_is_refused() -> None:
    check_tokens([0, 3], 4, "prompt")
    with raises(ConfigError, "no-such-token"):
        check_tokens([4], 4, "prompt")
