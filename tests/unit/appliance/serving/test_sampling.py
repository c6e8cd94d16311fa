"""Tokens drawn from scores: by seed and position, among the best ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from appliance.serving.sampling import draw
from waferstream.core.serving import Sampling

SCORES = np.log(np.array([0.1, 0.4, 0.3, 0.2], np.float32))


def test_zero_temperature_takes_the_best() -> None:
    token, logprob = draw(SCORES, Sampling(1, temperature=0), 5)
    assert token == 1
    assert logprob == pytest.approx(np.log(0.4))


def test_first_of_equal_scores_is_the_best() -> None:
    assert draw(np.zeros(4, np.float32), Sampling(1, temperature=0), 0)[0] == 0


def test_seed_and_position_state_the_token() -> None:
    """The same twice, others at other positions and for other seeds."""

    def tokens(seed: int) -> list[int]:
        return [draw(SCORES, Sampling(seed), position)[0] for position in range(50)]

    assert tokens(1) == tokens(1) != tokens(2)
    assert len(set(tokens(1))) == 4


def test_shares_are_those_of_the_softmax() -> None:
    counts = Counter(draw(SCORES, Sampling(3), position)[0] for position in range(4000))
    shares = [counts[token] / 4000 for token in range(4)]
    assert shares == pytest.approx([0.1, 0.4, 0.3, 0.2], abs=0.03)


@pytest.mark.parametrize(
    ("sampling", "drawn"),
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
def test_cuts_keep_the_best(sampling: Sampling, drawn: set[int]) -> None:
    """The fewest of the best that have ``top_p`` of the first ``top_k`` together."""
    assert {draw(SCORES, sampling, position)[0] for position in range(300)} == drawn


def test_low_temperature_is_almost_the_best() -> None:
    sampling = Sampling(1, temperature=0.01)
    assert {draw(SCORES, sampling, position)[0] for position in range(200)} == {1}
