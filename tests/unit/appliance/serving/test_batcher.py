"""What runs next: answers first, prompts in pieces, and no request changes another."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.serving.batcher import Batcher, Limits
from appliance.serving.sampling import draw
from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.serving import AnswerEnded, Event, Part, Request, Sampling, TokenDrawn

VOCABULARY = 8
LIMITS = Limits(context=32, cache_tokens=64, step_tokens=6)

SCORES = np.log(np.array([0.1, 0.4, 0.3, 0.2], np.float32))


def request(name: str, length: int = 3, max_tokens: int = 4, *, ends: int | None = None) -> Request:
    prompt = tuple(i % VOCABULARY for i in range(length))
    stops = frozenset() if ends is None else frozenset({ends})
    return Request(name, prompt, max_tokens, Sampling(1, temperature=0), stops)


def scores_of(part: Part) -> np.ndarray:
    """The next token is the sum of the last one and its position."""
    scores = np.zeros(VOCABULARY, np.float32)
    scores[(part.tokens[-1] + part.start + len(part.tokens)) % VOCABULARY] = 1
    return scores


def step(batcher: Batcher) -> list[Event]:
    parts = batcher.plan()
    return batcher.take(np.array([scores_of(part) for part in parts]).reshape(-1, VOCABULARY))


def run(batcher: Batcher) -> list[Event]:
    events: list[Event] = []
    for _ in range(500):
        if batcher.is_idle:
            return events
        events += step(batcher)
    raise AssertionError("the requests do not end")


def answers(events: list[Event]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in events:
        if isinstance(event, TokenDrawn):
            found.setdefault(event.request, []).append(event.token)
    return found


def test_prompt_runs_in_pieces_of_a_step() -> None:
    batcher = Batcher(LIMITS)
    batcher.submit(request("a", length=14))
    starts = []
    while not step(batcher):
        starts.append(batcher._running[0].num_cached)
    assert starts == [6, 12]


def test_any_temperature_above_zero_keeps_the_order() -> None:
    """Scores that a tiny one divides are no ties at infinity."""
    scores = np.array([1.0, 3.0, 2.0], np.float32)
    assert draw(scores, Sampling(1, temperature=1e-308), 0)[0] == 1


def test_answers_come_before_prompts() -> None:
    batcher = Batcher(LIMITS)
    batcher.submit(request("a", length=2))
    step(batcher)
    batcher.submit(request("b", length=10))
    assert [(part.sequence, len(part.tokens)) for part in batcher.plan()] == [("a", 1), ("b", 5)]


def test_end_token_ends_an_answer_and_is_not_part_of_it() -> None:
    batcher = Batcher(LIMITS)
    batcher.submit(request("a", length=3, max_tokens=9, ends=(2 + 3) % VOCABULARY))
    assert run(batcher) == [AnswerEnded("a", "stop")]


def test_answer_ends_at_its_limit() -> None:
    batcher = Batcher(LIMITS)
    batcher.submit(request("a", max_tokens=2))
    *tokens, end = run(batcher)
    assert len(tokens) == 2
    assert end == AnswerEnded("a", "length")


def test_requests_wait_for_room_in_the_cache() -> None:
    """In the order in which they came."""
    batcher = Batcher(LIMITS)
    for name in "abc":
        batcher.submit(request(name, length=20, max_tokens=12))
    assert {part.sequence for part in batcher.plan()} <= {"a", "b"}
    batcher.take(np.zeros((len(batcher._planned), VOCABULARY), np.float32))
    assert [each.request.name for each in batcher._waiting] == ["c"]
    assert set(answers(run(batcher))) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("length", "max_tokens", "code"),
    [(0, 1, "empty-request"), (3, 0, "empty-request"), (30, 3, "context-exceeded")],
)
def test_request_that_does_not_fit_is_refused(length: int, max_tokens: int, code: str) -> None:
    with raises(ConfigError, code):
        Batcher(LIMITS).submit(request("a", length, max_tokens))


def test_request_whose_pages_never_fit_is_refused() -> None:
    """It would wait for ever, and all that come after it."""
    with raises(ConfigError, "context-exceeded"):
        Batcher(Limits(32, cache_tokens=32, page=20)).submit(request("a", length=21))


def test_cancelled_request_is_forgotten_in_mid_step() -> None:
    batcher = Batcher(LIMITS)
    batcher.submit(request("a"))
    parts = batcher.plan()
    assert batcher.cancel("a")
    assert not batcher.cancel("a")
    assert batcher.take(np.array([scores_of(part) for part in parts])) == []
    assert batcher.is_idle


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12), st.integers(0, 5)), max_size=12),
    st.integers(1, 20),
    st.integers(32, 100),
    st.sampled_from([1, 4, 16]),
)
def test_an_answer_is_the_same_in_any_company(
    asked: list[tuple[int, int, int]], step_tokens: int, cache_tokens: int, page: int
) -> None:
    """Whatever comes when, in whatever pieces; all end, none is mixed up."""
    batcher = Batcher(Limits(32, cache_tokens, step_tokens, page))
    events: list[Event] = []
    for number, (length, max_tokens, steps) in enumerate(asked):
        batcher.submit(request(f"{number}", length, max_tokens))
        for _ in range(steps):
            events += step(batcher)
    found = answers(events + run(batcher))
    for number, (length, max_tokens, _) in enumerate(asked):
        alone = Batcher(LIMITS)
        alone.submit(request(f"{number}", length, max_tokens))
        assert found[f"{number}"] == answers(run(alone))[f"{number}"]


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
