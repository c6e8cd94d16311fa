"""The thread that serves: many requests at once, cancelled ones, and its failures."""

from __future__ import annotations

import queue
import threading

import pytest
import torch

from appliance.serving.batcher import Batcher, Limits
from appliance.serving.engine import Engine
from tests.support.errors import raises
from tests.support.models.small_decoder import CONTEXT, VOCABULARY, Decoder, make_stage
from waferstream.core.errors import ApplianceRuntimeServerError, ConfigError
from waferstream.core.serving import (
    AnswerEnded,
    AnswerFailed,
    Event,
    Request,
    Sampling,
    TokenDrawn,
)

WAIT_S = 60


class Heard:
    """The events of one request."""

    def __init__(self) -> None:
        self.events: queue.Queue[Event] = queue.Queue()

    def tokens(self) -> list[int]:
        found = []
        while isinstance(event := self.events.get(timeout=WAIT_S), TokenDrawn):
            found.append(event.token)
        assert isinstance(event, AnswerEnded), event
        return found


def asked(name: str, seed: int, length: int = 5, max_tokens: int = 12) -> Request:
    return Request(name, tuple(i % VOCABULARY for i in range(length)), max_tokens, Sampling(seed))


def make_engine(model: Decoder | None = None) -> Engine:
    stage = make_stage(model)
    return Engine(stage, Batcher(Limits(CONTEXT, cache_tokens=300)))


def test_answers_do_not_depend_on_company() -> None:
    engine = make_engine()
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
        assert engine._stage.cache.num_bytes == 0
    finally:
        engine.close()


def test_cancelled_request_leaves_nothing() -> None:
    engine = make_engine()
    has_begun = threading.Event()
    try:
        engine.submit(asked("a", 1, max_tokens=100), lambda _: has_begun.set())
        assert has_begun.wait(WAIT_S)
        engine.cancel("a")
        engine.cancel("a")
        heard = Heard()
        engine.submit(asked("b", 1), heard.events.put)
        assert len(heard.tokens()) == 12
        assert engine._stage.cache.num_bytes == 0
    finally:
        engine.close()


def test_request_that_does_not_fit_is_refused_at_once() -> None:
    engine = make_engine()
    try:
        with raises(ConfigError, "context-exceeded"):
            engine.submit(asked("a", 1, max_tokens=CONTEXT), lambda _: None)
    finally:
        engine.close()


def test_closed_engine_refuses() -> None:
    engine = make_engine()
    engine.close()
    engine.close()
    with raises(ApplianceRuntimeServerError, "serving-ended"):
        engine.submit(asked("a", 1), lambda _: None)


@pytest.mark.parametrize("code", ["scores-not-finite", "serving-failed"])
def test_failure_reaches_every_request(code: str) -> None:
    """None waits for ever."""
    model = Decoder()
    engine = make_engine(model)
    if code == "scores-not-finite":
        model.head.weight.data.fill_(float("nan"))
        engine._stage._weights._packed.clear()
    else:
        model.mix = _fails
    heard = [Heard() for _ in range(3)]
    try:
        for number, each in enumerate(heard):
            try:
                engine.submit(asked(f"{number}", 1), each.events.put)
            except ApplianceRuntimeServerError:  # it has failed before
                each.events.put(
                    AnswerFailed(f"{number}", ApplianceRuntimeServerError("x", code=code))
                )
        for each in heard:
            event = each.events.get(timeout=WAIT_S)
            assert isinstance(event, AnswerFailed)
            assert event.error.code in (code, "serving-ended")
    finally:
        engine.close()


def _fails(*_: torch.Tensor) -> torch.Tensor:
    raise ArithmeticError("no memory")
