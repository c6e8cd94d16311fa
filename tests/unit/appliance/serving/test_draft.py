"""A model that proposes: what it computes, and what it has of sequences."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.serving.draft import Draft, propose
from appliance.serving.sequence import Sequence
from tests.support.models.hashing_stage import HashingStage, answer_alone
from waferstream.core.serving import Request, Sampling

NUMBERS = count()


def answering(name: str = "a", length: int = 5, prediction: tuple[int, ...] = ()) -> Sequence:
    prompt = tuple(i % 7 for i in range(length))
    request = Request(name, prompt, 40, Sampling(3), prediction=prediction)
    return Sequence(request, next(NUMBERS))


@pytest.mark.parametrize("step_tokens", [1, 3, 100])
def test_draft_of_the_same_model_is_always_right(step_tokens: int) -> None:
    """Once it has computed the prompt."""
    stage = HashingStage()
    draft, each = Draft(stage, 100, 100, step_tokens), answering()
    while not (found := draft.propose({each: 4})["a"]):
        assert stage.num_calls < 9
    assert list(found) == answer_alone(each.request)[: len(found)]
    assert len(found) == 4


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=8))
def test_draft_goes_on_from_what_is_right(taken: list[tuple[int, int]]) -> None:
    """However many of its tokens came, and what came instead; each is computed once."""
    stage = HashingStage()
    draft, each = Draft(stage, 500, 500), answering()
    for num_right, other in taken:
        found = draft.propose({each: 6})["a"]
        for token in (*found[:num_right], other):
            each.append(token)
        assert len(stage.sequences["a"]) <= len(each.tokens) + 6
    expected = Draft(HashingStage(), 500, 500).propose({each: 6})
    computed = stage.num_tokens
    assert draft.propose({each: 6}) == expected
    assert stage.num_tokens - computed <= 10


def test_draft_keeps_within_its_memory_and_context() -> None:
    """It forgets what it has no room for, and what no longer answers."""
    stage = HashingStage(memory=40)
    draft = Draft(stage, 30, 40)
    short, late, long = answering("short", 10), answering("late", 15), answering("long", 60)
    assert draft.propose({short: 3, late: 3, long: 3}).keys() == {"short"}
    assert draft.propose({late: 3}).keys() == {"late"}
    assert stage.sequences.keys() == {"late"}
    assert draft.propose({late: 0}) == {}
    assert stage.sequences.keys() == {"late"}
    draft.propose({})
    assert not stage.sequences


def test_lost_draft_proposes_nothing_once() -> None:
    draft, each = Draft(HashingStage(losses=[0]), 100, 100), answering()
    assert draft.propose({each: 2}) == {}
    assert len(draft.propose({each: 2})["a"]) == 2


def test_prediction_comes_before_drafts_and_lookup() -> None:
    predicted, plain = answering("a", 10, prediction=(6, 5)), answering("b", 10)
    assert propose({predicted: 2, plain: 2}, None) == {"a": (6, 5), "b": (3, 4)}
    stage = HashingStage()
    assert propose({predicted: 2, plain: 2}, Draft(stage, 100, 100))["a"] == (6, 5)
    assert stage.sequences.keys() == {"b"}
