"""What runs next: answers first, prompts in pieces, and no request changes another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.serving.batcher import Batcher
from appliance.serving.cache_directory import BLOCK, Copy
from appliance.serving.draft import Draft, propose
from appliance.serving.limits import Limits
from tests.support.errors import raises
from tests.support.models.hashing_stage import VOCABULARY, HashingStage, answer_alone
from waferstream.core.error_status import status_of
from waferstream.core.errors import (
    ApplianceResourceExhausted,
    ApplianceRuntimeServerError,
    ConfigError,
)
from waferstream.core.serving import (
    AnswerEnded,
    AnswerFailed,
    CacheLostError,
    Event,
    PromptRead,
    Request,
    Sampling,
    Sharing,
    TokenDrawn,
)

LIMITS = Limits(context=32, cache_tokens=64, step_tokens=6)


def request(name: str, length: int = 3, max_tokens: int = 4, *, ends: int | None = None) -> Request:
    prompt = tuple(i % VOCABULARY for i in range(length))
    stops = frozenset() if ends is None else frozenset({ends})
    return Request(name, prompt, max_tokens, Sampling(1, temperature=0), stops)


def step(
    batcher: Batcher,
    stage: HashingStage,
    proposals: Mapping[str, tuple[int, ...]] | None = None,
    draft: Draft | None = None,
) -> list[Event]:
    """What the engine does in a step."""
    if proposals is None:
        proposals = propose(batcher.wanted, draft)
    parts = batcher.plan(proposals)
    for change in batcher.cache.changes():
        if isinstance(change, Copy):
            stage.copy(change.source, change.target, change.tokens)
        else:
            stage.forget(change.sequence)
    try:
        return batcher.take(stage.extend(parts).numpy())
    except CacheLostError:
        batcher.restart()
        return []


def run(
    batcher: Batcher, stage: HashingStage | None = None, draft: Draft | None = None
) -> list[Event]:
    events: list[Event] = []
    stage = stage or HashingStage()
    for _ in range(3000):
        if batcher.is_idle:
            return events
        events += step(batcher, stage, draft=draft)
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
    stage = HashingStage()
    lengths = []
    while not step(batcher, stage):
        lengths.append(stage.num_tokens)
    assert lengths == [6, 12]


def test_grammar_without_a_guide_is_refused() -> None:
    with raises(ConfigError, "grammar-without-guide"):
        Batcher(LIMITS).submit(replace(request("a"), grammar="start: /a/"))


def test_answers_come_before_prompts() -> None:
    batcher = Batcher(LIMITS)
    batcher.submit(request("a", length=2))
    step(batcher, HashingStage())
    batcher.submit(request("b", length=10))
    assert [(part.start, len(part.tokens)) for part in batcher.plan()] == [(2, 1), (0, 5)]


def test_end_token_ends_an_answer_and_is_not_part_of_it() -> None:
    batcher = Batcher(LIMITS)
    first = answer_alone(request("a"))[0]
    batcher.submit(request("a", max_tokens=9, ends=first))
    assert run(batcher) == [PromptRead("a", 0), AnswerEnded("a", "stop")]


def test_answer_ends_at_its_limit() -> None:
    batcher = Batcher(LIMITS)
    batcher.submit(request("a", max_tokens=2))
    *tokens, end = run(batcher)
    assert len(tokens) == 1 + 2
    assert end == AnswerEnded("a", "length")


def test_requests_wait_for_room_in_the_cache() -> None:
    """In the order in which they came."""
    batcher = Batcher(LIMITS)
    for name in "abc":
        batcher.submit(request(name, length=28, max_tokens=4))
    stage = HashingStage(memory=64)
    begun = [event.request for event in run(batcher, stage) if isinstance(event, PromptRead)]
    assert begun == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("length", "max_tokens", "code"),
    [(0, 1, "empty-request"), (3, 0, "empty-request"), (30, 3, "context-exceeded")],
)
def test_request_that_does_not_fit_is_refused(length: int, max_tokens: int, code: str) -> None:
    with raises(ConfigError, code):
        Batcher(LIMITS).submit(request("a", length, max_tokens))


def test_prediction_that_never_fits_is_refused() -> None:
    with raises(ConfigError, "prediction-too-long"):
        Batcher(LIMITS).submit(replace(request("a"), prediction=(0,) * 33))


def test_request_whose_pages_never_fit_is_refused() -> None:
    """It would wait for ever, and all that come after it."""
    with raises(ConfigError, "context-exceeded"):
        Batcher(Limits(32, cache_tokens=32, page=20)).submit(request("a", length=21))


def test_cancelled_request_is_forgotten_in_mid_step() -> None:
    batcher, stage = Batcher(LIMITS), HashingStage()
    batcher.submit(request("a"))
    scores = stage.extend(batcher.plan()).numpy()
    assert batcher.cancel("a")
    assert not batcher.cancel("a")
    assert batcher.take(scores) == []
    assert batcher.is_idle
    assert batcher.cache.free == LIMITS.cache_tokens


def test_last_one_gives_memory_to_those_before() -> None:
    """It is computed again, and no client hears of it."""
    batcher, stage = Batcher(LIMITS), HashingStage(memory=64)
    asked = [request(name, length=20, max_tokens=12) for name in "abc"]
    for each in asked:
        batcher.submit(each)
    events = run(batcher, stage)
    assert answers(events) == {each.name: answer_alone(each) for each in asked}
    assert [e.request for e in events if isinstance(e, AnswerEnded)] == ["a", "b", "c"]
    assert stage.num_tokens > 3 * 31


def test_beginning_is_read_once() -> None:
    """By requests of one tenant and key, for as long as it is kept."""
    clock = [0.0]
    batcher = Batcher(Limits(500, cache_tokens=5000), lambda: clock[0])
    stage = HashingStage()

    def cached(tenant: str = "", key: str = "", life_s: float = 300.0) -> int:
        sharing = Sharing(key, life_s)
        asked = replace(request("a", 2 * BLOCK + 5, 1), tenant=tenant, sharing=sharing)
        batcher.submit(asked)
        (found,) = (e for e in run(batcher, stage) if isinstance(e, PromptRead))
        return found.cached_tokens

    assert cached() == 0
    assert cached() == 2 * BLOCK
    clock[0] += 299
    assert cached() == 2 * BLOCK
    assert cached(tenant="other") == cached(key="other") == cached(life_s=0) == 0
    clock[0] += 301
    assert cached(life_s=3600.0) == 0
    clock[0] += 3599
    assert cached() == 2 * BLOCK
    clock[0] += 3600
    step(batcher, stage)
    assert not stage.sequences


def test_restart_computes_all_again() -> None:
    batcher, stage = Batcher(LIMITS), HashingStage(losses=[2, 3, 7, 11])
    asked = [request(name, length=9, max_tokens=9) for name in "abc"]
    for each in asked:
        batcher.submit(each)
    assert answers(run(batcher, stage)) == {each.name: answer_alone(each) for each in asked}


def test_right_proposals_come_in_one_step() -> None:
    """Up to the first wrong one; the stage computes what comes instead."""
    batcher, stage = Batcher(LIMITS), HashingStage()
    asked = request("a", max_tokens=9)
    answer = answer_alone(asked)
    batcher.submit(asked)
    assert len(step(batcher, stage)) == 2
    wrong = (answer[3] + 1) % VOCABULARY
    events = step(batcher, stage, {"a": (*answer[1:3], wrong, 0)})
    assert answers(events)["a"] == answer[1:4]
    events += step(batcher, stage, {"a": tuple(answer[4:8])})
    assert answers(events)["a"] == answer[1:]
    assert batcher.is_idle


def test_proposals_fill_a_step_and_no_more() -> None:
    batcher, stage = Batcher(Limits(32, 64, step_tokens=20, proposed_step_tokens=5)), HashingStage()
    for name in "abc":
        batcher.submit(request(name, max_tokens=9))
    step(batcher, stage)
    parts = batcher.plan(dict.fromkeys("abc", (0,) * 4))
    assert [(len(part.tokens), part.num_scores) for part in parts] == [(3, 3), (1, 1), (1, 1)]
    batcher.take(stage.extend(parts).numpy())
    batcher.submit(request("d"))
    assert [len(part.tokens) for part in batcher.plan({"a": (0,) * 4})] == [1, 1, 1, 3]


def begun(events: list[Event]) -> list[str]:
    return [event.request for event in events if isinstance(event, PromptRead)]


def test_more_urgent_request_takes_the_memory_of_others() -> None:
    batcher, stage = Batcher(LIMITS), HashingStage(memory=64)
    asked = [
        replace(request(n, 20, 12), priority=p) for n, p in zip("abcd", (0, -1, 1, -1), strict=True)
    ]
    for each in asked[:2]:
        batcher.submit(each)
    events = [event for _ in range(8) for event in step(batcher, stage)]
    for each in asked[2:]:
        batcher.submit(each)
    events += run(batcher, stage)
    assert answers(events) == {each.name: answer_alone(each) for each in asked}
    assert [e.request for e in events if isinstance(e, AnswerEnded)] == ["a", "c", "b", "d"]


def test_more_urgent_request_takes_a_place_in_the_step() -> None:
    batcher, stage = Batcher(Limits(32, 64, step_tokens=2)), HashingStage()
    for name, priority in zip("abc", (0, 0, 1), strict=True):
        batcher.submit(replace(request(name, 1, 5), priority=priority))
        step(batcher, stage)
    assert {each.request.name for each in batcher.wanted} == {"a", "c"}


def test_tenant_of_many_requests_does_not_hold_others_up() -> None:
    batcher, stage = Batcher(Limits(32, 64, step_tokens=2)), HashingStage()
    for number in range(20):
        batcher.submit(replace(request(f"many-{number}"), tenant="many"))
    for _ in range(4):
        step(batcher, stage)
    for number in range(2):
        batcher.submit(replace(request(f"few-{number}"), tenant="few"))
    later = begun(run(batcher, stage))
    assert later.index("few-0") <= 2
    assert later.index("few-1") <= 4


@pytest.mark.parametrize("runs", [False, True])
def test_request_whose_time_is_over_fails(runs: bool) -> None:
    clock = [5.0]
    batcher, stage = Batcher(Limits(32, 32, step_tokens=1), lambda: clock[0]), HashingStage()
    batcher.submit(replace(request("a", 5, 20), deadline_s=2.0 if runs else None))
    batcher.submit(replace(request("b", 5, 20), deadline_s=None if runs else 2.0))
    step(batcher, stage)
    clock[0] += 2
    events = run(batcher, stage)
    (failed,) = (event for event in events if isinstance(event, AnswerFailed))
    assert failed.request == ("a" if runs else "b")
    assert failed.error.code == "deadline-passed"
    assert status_of(type(failed.error), failed.error.code).http == 408
    assert ("b" in begun(events)) == runs


def test_failure_is_told_although_the_stage_is_lost_meanwhile() -> None:
    seconds = [0.0]
    batcher = Batcher(LIMITS, now=lambda: seconds[0])
    batcher.submit(replace(request("a"), deadline_s=2.0))
    batcher.plan()
    seconds[0] = 3.0
    batcher.plan()
    batcher.restart()
    assert not batcher.is_idle
    (failed,) = step(batcher, HashingStage())
    assert isinstance(failed, AnswerFailed)
    assert batcher.is_idle


def test_only_so_many_requests_wait() -> None:
    batcher = Batcher(Limits(32, 64, waiting=3, waiting_of_tenant=2))
    for name in "ab":
        batcher.submit(request(name))
    with raises(ApplianceResourceExhausted, "too-many-waiting"):
        batcher.submit(request("c"))
    batcher.submit(replace(request("d"), tenant="other"))
    with raises(ApplianceRuntimeServerError, "queue-full"):
        batcher.submit(replace(request("e"), tenant="other"))
    batcher.cancel("a")
    batcher.submit(request("c"))


Asked = tuple[Request, int, bool]
"""A request, the steps before the next one, and whether it is cancelled then."""


@st.composite
def companies(draws: st.DrawFn) -> list[Asked]:
    """Requests that often begin alike."""
    asked = []
    for number in range(draws(st.integers(1, 8))):
        length = draws(st.integers(1, 2 * BLOCK + 40))
        begins = draws(st.sampled_from([0, length // 2, length]))
        prompt = [i % VOCABULARY for i in range(length)]
        prompt[begins:] = [(i * i + number) % VOCABULARY for i in range(length - begins)]
        made = Request(
            f"{number}",
            tuple(prompt),
            draws(st.integers(1, 12)),
            Sampling(number, draws(st.sampled_from([0.0, 1.0]))),
            frozenset(draws(st.sets(st.integers(0, VOCABULARY - 1), max_size=1))),
            tenant=draws(st.sampled_from(["", "other"])),
            priority=draws(st.integers(-1, 1)),
            sharing=Sharing(life_s=draws(st.sampled_from([0.0, 300.0]))),
        )
        answer = answer_alone(made)
        changed = draws(st.integers(0, len(answer)))
        made = replace(made, prediction=(*answer[:changed], 0, *answer[changed:]))
        asked.append((made, draws(st.integers(0, 5)), draws(st.integers(0, 3)) == 0))
    return asked


@given(
    companies(),
    st.integers(1, 300),
    st.sampled_from([0, 5, 16]),
    st.integers(320, 1000),
    st.sampled_from([1, 4, 16]),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from([None, "", "another"]),
)
def test_an_answer_is_the_same_in_any_company(
    company: list[Asked],
    step_tokens: int,
    proposed: int,
    cache_tokens: int,
    page: int,
    losses: list[int],
    model: str | None,
) -> None:
    """Whatever comes when, in pieces, cached, preempted, lost, proposed; none is mixed up."""
    batcher = Batcher(Limits(310, cache_tokens, step_tokens, proposed, page), lambda: 0.0)
    stage = HashingStage(cache_tokens, losses)
    drafting = HashingStage(cache_tokens, losses[:1], model or "")
    draft = None if model is None else Draft(drafting, 250, cache_tokens, step_tokens)
    events: list[Event] = []
    for asked, steps, is_cancelled in company:
        batcher.submit(asked)
        for _ in range(steps):
            events += step(batcher, stage, draft=draft)
        if is_cancelled:
            batcher.cancel(asked.name)
    found = answers(events + run(batcher, stage, draft))
    for asked, _, is_cancelled in company:
        expected = answer_alone(asked)
        got = found.get(asked.name, [])
        assert got == expected or (is_cancelled and got == expected[: len(got)])
    assert batcher.cache.ends_in_s in (None, 300.0)
    batcher.cache.clear()
    assert batcher.cache.free == cache_tokens
    step(batcher, stage, draft=draft)
    assert not drafting.sequences
