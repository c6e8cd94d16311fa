"""The thread that serves: many requests at once, cancelled ones, and its failures."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from appliance.serving.batcher import Batcher
from appliance.serving.cache_directory import BLOCK, Change
from appliance.serving.draft import Draft
from appliance.serving.engine import Engine
from appliance.serving.limits import Limits
from appliance.serving.pipeline import Pipeline
from tests.support.errors import raises
from tests.support.models.hashing_stage import HashingStage, answer_alone
from tests.support.models.small_decoder import CONTEXT, VOCABULARY, caches_of, make_pipeline
from waferstream.core.errors import ApplianceRuntimeServerError, ConfigError
from waferstream.core.serving import (
    AnswerEnded,
    AnswerFailed,
    Event,
    Part,
    PromptRead,
    Request,
    Sampling,
    Sharing,
    TokenDrawn,
)

WAIT_S = 60


class Heard:
    """The events of one request."""

    def __init__(self) -> None:
        self.events: queue.Queue[Event] = queue.Queue()

    def tokens(self) -> list[int]:
        found = []
        assert isinstance(self.events.get(timeout=WAIT_S), PromptRead)
        while isinstance(event := self.events.get(timeout=WAIT_S), TokenDrawn):
            found.append(event.token)
        assert isinstance(event, AnswerEnded), event
        return found


def asked(name: str, seed: int, length: int = 5, max_tokens: int = 12) -> Request:
    return Request(name, tuple(i % VOCABULARY for i in range(length)), max_tokens, Sampling(seed))


def make_engine(pipeline: Pipeline) -> Engine:
    return Engine(pipeline, Batcher(Limits(CONTEXT, cache_tokens=300)))


def test_answers_do_not_depend_on_company() -> None:
    pipeline = make_pipeline()
    engine = make_engine(pipeline)
    try:
        alone = []
        for seed in range(8):
            heard = Heard()
            engine.submit(asked(f"alone-{seed}", seed), heard.events.put)
            alone.append(heard.tokens())
        together = [Heard() for _ in range(8)]
        for seed, heard in enumerate(together):
            engine.submit(asked(f"together-{seed}", seed), heard.events.put)
        assert [heard.tokens() for heard in together] == alone
        assert len(set(map(tuple, alone))) > 1
        assert not any(each.num_bytes for each in caches_of(pipeline))
    finally:
        engine.close()


def test_cancelled_request_leaves_nothing() -> None:
    pipeline = make_pipeline()
    engine = make_engine(pipeline)
    has_begun = threading.Event()
    try:
        engine.submit(asked("a", 1, max_tokens=100), lambda _: has_begun.set())
        assert has_begun.wait(WAIT_S)
        engine.cancel("a")
        engine.cancel("a")
        heard = Heard()
        engine.submit(asked("b", 1), heard.events.put)
        assert len(heard.tokens()) == 12
        assert not any(each.num_bytes for each in caches_of(pipeline))
    finally:
        engine.close()


def test_request_cancelled_once_a_step_is_planned_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stage computes its part all the same, and forgets it behind the step."""
    stage = HashingStage()
    engine = Engine(stage, Batcher(Limits(CONTEXT, cache_tokens=300)))
    change_cache = engine._change_cache

    def cancel_first(changes: Sequence[Change]) -> None:
        engine.cancel("a")
        change_cache(changes)

    monkeypatch.setattr(engine, "_change_cache", cancel_first)
    try:
        heard, request = Heard(), asked("b", 1)
        engine.submit(asked("a", 1), lambda _: None)
        engine.submit(request, heard.events.put)
        assert heard.tokens() == answer_alone(request)
    finally:
        engine.close()
    assert not stage.sequences


def test_replaced_stage_changes_no_answer() -> None:
    """It loses its cache in any step, and clients notice nothing."""
    stage = HashingStage(losses=[0, 1, 4, 5, 9, 30])
    engine = Engine(stage, Batcher(Limits(CONTEXT, cache_tokens=300)))
    try:
        heard = [Heard() for _ in range(4)]
        requests = [asked(f"{seed}", seed, length=40 + seed) for seed in range(4)]
        for request, each in zip(requests, heard, strict=True):
            engine.submit(request, each.events.put)
        assert [each.tokens() for each in heard] == list(map(answer_alone, requests))
    finally:
        engine.close()


def test_beginning_that_is_kept_expires_while_nothing_runs() -> None:
    """The stage is told without another request."""

    class Told(HashingStage):
        is_told = threading.Event()

        def forget(self, sequence: str) -> None:
            super().forget(sequence)
            self.is_told.set()

    stage = Told()
    engine = Engine(stage, Batcher(Limits(300, cache_tokens=600)))
    try:
        heard = Heard()
        request = replace(asked("a", 1, length=BLOCK + 1), sharing=Sharing(life_s=0.05))
        engine.submit(request, heard.events.put)
        assert heard.tokens() == answer_alone(request)
        assert stage.is_told.wait(WAIT_S)
        assert not stage.sequences
    finally:
        engine.close()


def test_listener_that_fails_is_left_and_others_go_on() -> None:
    engine = Engine(HashingStage(), Batcher(Limits(CONTEXT, cache_tokens=300)))
    told: list[Event] = []

    def fail(event: Event) -> None:
        told.append(event)
        raise RuntimeError("its loop is closed")

    try:
        heard, request = Heard(), asked("b", 2)
        engine.submit(asked("a", 1), fail)
        engine.submit(request, heard.events.put)
        assert heard.tokens() == answer_alone(request)
        assert told == [PromptRead("a", 0)]
        assert engine.load.running == 0
    finally:
        engine.close()


def test_request_that_does_not_fit_is_refused_at_once() -> None:
    engine = make_engine(make_pipeline())
    try:
        with raises(ConfigError, "context-exceeded"):
            engine.submit(asked("a", 1, max_tokens=CONTEXT), lambda _: None)
    finally:
        engine.close()


def test_closed_engine_refuses() -> None:
    engine = make_engine(make_pipeline())
    engine.close()
    engine.close()
    with raises(ApplianceRuntimeServerError, "serving-ended"):
        engine.submit(asked("a", 1), lambda _: None)


class NanAfter(HashingStage):
    """Its scores are no numbers once a sequence has some token."""

    def __init__(self, token: int) -> None:
        super().__init__()
        self._token = token

    def extend(self, parts: Sequence[Part]) -> torch.Tensor:
        scores, row = super().extend(parts), 0
        for part in parts:
            if self._token in self.sequences[part.sequence]:
                scores[row : row + part.num_scores] = math.nan
            row += part.num_scores
        return scores


def test_scores_that_are_no_numbers_end_one_answer() -> None:
    """Of all others, also those that begin with the same tokens, nothing changes."""
    batcher, stage = Batcher(Limits(300, cache_tokens=900)), NanAfter(7)
    engine = Engine(stage, batcher, Draft(NanAfter(7), 300, 900))
    good = [replace(asked(f"{n}", n), prompt=(0,) * (BLOCK + n), max_tokens=2) for n in (1, 2)]
    bad = replace(good[0], name="bad", prompt=(*good[0].prompt, 7))
    try:
        failed, heard = Heard(), [Heard() for _ in good]
        engine.submit(bad, failed.events.put)
        for request, each in zip(good, heard, strict=True):
            engine.submit(request, each.events.put)
        assert [each.tokens() for each in heard] == list(map(answer_alone, good))
        assert failed.events.get(timeout=WAIT_S) == PromptRead("bad", 0)
        event = failed.events.get(timeout=WAIT_S)
        assert isinstance(event, AnswerFailed)
        assert event.error.code == "scores-not-finite"
        assert engine.is_alive
    finally:
        engine.close()


def test_failure_reaches_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """None waits for ever."""
    pipeline = make_pipeline()
    monkeypatch.setattr(pipeline, "rows", _fails)
    engine = make_engine(pipeline)
    heard = [Heard() for _ in range(3)]
    try:
        for number, each in enumerate(heard):
            try:
                engine.submit(asked(f"{number}", 1), each.events.put)
            except ApplianceRuntimeServerError:  # it has failed before
                each.events.put(
                    AnswerFailed(
                        f"{number}", ApplianceRuntimeServerError("x", code="serving-ended")
                    )
                )
        for each in heard:
            event = each.events.get(timeout=WAIT_S)
            assert isinstance(event, AnswerFailed)
            assert event.error.code in ("serving-failed", "serving-ended")
    finally:
        engine.close()


def _fails(_: Sequence[Part]) -> torch.Tensor:
    raise ArithmeticError("no memory")
