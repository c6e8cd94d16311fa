"""Many requests of several tenants, of which many leave: none is lost or mixed up."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from appliance.serving.batcher import Batcher
from appliance.serving.engine import Engine
from appliance.serving.limits import Limits
from tests.support.models.hashing_stage import VOCABULARY, HashingStage, answer_alone
from waferstream.core.serving import (
    AnswerEnded,
    Event,
    PromptRead,
    Request,
    Sampling,
    Sharing,
    TokenDrawn,
)

WAIT_S = 120
LIMITS = Limits(200, cache_tokens=3000, step_tokens=64, page=16, waiting=10**6, waiting_of_tenant=10**6)  # fmt: skip


class Client:
    """Hears the events of one request, and leaves after some tokens, or never."""

    def __init__(self, request: Request, engine: Engine, leaves_after: int | None) -> None:
        self.request = request
        self.leaves_after = leaves_after
        self.tokens: list[int] = []
        self.num_read = self.num_ended = 0
        self.is_done = threading.Event()
        self._engine = engine

    def hear(self, event: Event) -> None:
        assert event.request == self.request.name
        assert not self.is_done.is_set()
        if isinstance(event, PromptRead):
            self.num_read += 1
        elif isinstance(event, TokenDrawn):
            self.tokens.append(event.token)
            if len(self.tokens) == self.leaves_after:
                self._engine.cancel(self.request.name)
                self.is_done.set()
        else:
            assert isinstance(event, AnswerEnded), event
            self.num_ended += 1
            self.is_done.set()

    def check(self) -> None:
        """What came is the answer, or its beginning; each kind of event came once."""
        answer = answer_alone(self.request)
        has_left = self.leaves_after is not None and len(self.tokens) == self.leaves_after
        assert self.tokens == (answer[: self.leaves_after] if has_left else answer)
        assert (self.num_read, self.num_ended) == (1, 0 if has_left else 1)


def asked(number: int, chance: random.Random) -> Request:
    length = chance.choice([1, 3, 20, 60, 140])
    begins = chance.choice([0, length])
    prompt = [i % VOCABULARY for i in range(begins)]
    prompt += chance.choices(range(VOCABULARY), k=length - begins)
    sampling = Sampling(number, temperature=chance.choice([0.0, 1.0]))
    return Request(
        f"{number}",
        tuple(prompt),
        chance.randint(1, 24),
        sampling,
        tenant=f"{number % 4}",
        priority=chance.choice([-1, 0, 0, 1]),
        sharing=Sharing(life_s=chance.choice([0.0, 0.05])),
    )


@contextmanager
def engine_of(stage: HashingStage, batcher: Batcher) -> Iterator[Engine]:
    engine = Engine(stage, batcher)
    try:
        yield engine
    finally:
        engine.close()


@pytest.mark.parametrize("count", [2000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_crowd_is_answered(count: int) -> None:
    """Four threads ask, 30 % leave, and the cache is lost now and then."""
    chance = random.Random(7)
    is_free = threading.Event()

    class Stage(HashingStage):
        def forget(self, sequence: str) -> None:
            super().forget(sequence)
            if not self.sequences:
                is_free.set()

    stage = Stage(LIMITS.cache_tokens, losses=chance.sample(range(count // 4), 10))
    batcher = Batcher(LIMITS)
    with engine_of(stage, batcher) as engine:
        clients = [
            Client(
                asked(number, chance),
                engine,
                chance.randint(1, 12) if chance.random() < 0.3 else None,
            )
            for number in range(count)
        ]

        def submit(those: list[Client]) -> None:
            for client in those:
                engine.submit(client.request, client.hear)

        threads = [threading.Thread(target=submit, args=(clients[i::4],)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        for client in clients:
            assert client.is_done.wait(WAIT_S)
        for client in clients:
            client.check()
        while stage.sequences:
            is_free.clear()
            assert not stage.sequences or is_free.wait(WAIT_S)
    assert batcher.cache.free == LIMITS.cache_tokens
    assert batcher.is_idle
    assert not engine._listeners
