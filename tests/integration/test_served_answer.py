"""One answer: the same tokens alone and in company, cached, drafted, preempted, after losses."""

from __future__ import annotations

import hashlib
import queue
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch

from appliance.serving.batcher import Batcher
from appliance.serving.draft import Draft
from appliance.serving.engine import Engine
from appliance.serving.limits import Limits
from appliance.serving.pipeline import Pipeline
from appliance.serving.sequence import Sequence as Asked
from tests.support.models.small_decoder import CONTEXT, VOCABULARY, Decoder, make_pipeline
from waferstream.core.serving import (
    AnswerEnded,
    CacheLostError,
    Event,
    Part,
    PromptRead,
    Request,
    Sampling,
    Sharing,
    TokenDrawn,
)

WAIT_S = 60
SHARED = tuple(3 * i % VOCABULARY for i in range(130))
"""More than a block of tokens by which beginnings are shared."""


class LossyStage:
    """A pipeline that loses its cache in steps that are drawn at random.

    Args:
        pipeline: What computes.
        chance: How likely a step is to find it lost.
    """

    def __init__(self, pipeline: Pipeline, chance: float) -> None:
        self.num_losses = 0
        self._pipeline = pipeline
        self._chance = chance
        self._random = random.Random(3)
        self._names: set[str] = set()

    def extend(self, parts: Sequence[Part]) -> torch.Tensor:
        self._names |= {part.sequence for part in parts}
        if self._random.random() < self._chance:
            self.num_losses += 1
            self.clear()
            raise CacheLostError
        return self._pipeline.extend(parts)

    def copy(self, source: str, target: str, tokens: int) -> None:
        self._names.add(target)
        self._pipeline.copy(source, target, tokens)

    def forget(self, sequence: str) -> None:
        self._names.discard(sequence)
        self._pipeline.forget(sequence)

    def clear(self) -> None:
        """Forget all sequences."""
        for name in list(self._names):
            self.forget(name)


class CountingBatcher(Batcher):
    """A batcher that counts whom it preempts."""

    num_preempted = 0

    def _preempt(self, each: Asked) -> None:
        self.num_preempted += 1
        super()._preempt(each)


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return make_pipeline(is_proven=False)


@pytest.fixture(scope="module")
def drafts() -> dict[str, Pipeline]:
    """The model itself, and one that is often wrong."""
    other = Decoder()
    with torch.no_grad():
        other.head.weight += 0.1 * torch.randn_like(other.head.weight)
    return {
        "same": make_pipeline(is_proven=False),
        "other": make_pipeline(other, is_proven=False),
    }


def questions() -> list[Request]:
    """Greedy and sampled, long and short; the long ones begin alike."""
    prompts = [(*SHARED, 1), (*SHARED, 2, 5), SHARED[:9], (4,), (*SHARED, 7), (1, 2, 3) * 9]
    return [
        Request(
            f"{number}",
            prompt,
            14,
            Sampling(number, temperature=float(number % 3 != 0)),
            prediction=(1, 2, 3) if number == 3 else (),
        )
        for number, prompt in enumerate(prompts)
    ]


def asked_of(engine: Engine, requests: Sequence[Request], *, alone: bool) -> tuple[str, int]:
    """Return the digest of all answers, and how many tokens of prompts were cached."""
    events: queue.Queue[Event] = queue.Queue()
    found: dict[str, list[int]] = {}
    num_cached = 0
    for some in [[each] for each in requests] if alone else [requests]:
        with engine._changed:  # all of them come before the next step
            for request in some:
                engine.submit(request, events.put)
        num_open = len(some)
        while num_open:
            event = events.get(timeout=WAIT_S)
            if isinstance(event, TokenDrawn):
                found.setdefault(event.request, []).append(event.token)
            elif isinstance(event, PromptRead):
                num_cached += event.cached_tokens
            else:
                assert isinstance(event, AnswerEnded), event
                num_open -= 1
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest(), num_cached


@pytest.fixture(scope="module")
def expected(pipeline: Pipeline) -> str:
    """The digest of answers by a loop over the pipeline, a token at a time."""
    engine = Engine(pipeline, Batcher(Limits(CONTEXT, 10**4, proposed_step_tokens=0)))
    try:
        requests = [replace(each, sharing=Sharing(life_s=0)) for each in questions()]
        return asked_of(engine, requests, alone=True)[0]
    finally:
        engine.close()


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("draft", ["none", "lookup", "same", "other"])
def test_answers_have_one_hash(
    pipeline: Pipeline, drafts: dict[str, Pipeline], expected: str, draft: str, alone: bool
) -> None:
    """With the prefix cache and without, preempted or not, lost at random tokens or not."""
    for is_cached, is_short, is_lossy in product((True, False), repeat=3):
        stage = LossyStage(pipeline, 0.1 * is_lossy)
        most = 0 if draft == "none" else 16
        limits = Limits(CONTEXT, 160 if is_short else 2000, 40, most, page=16)
        batcher = CountingBatcher(limits)
        drafting = Draft(drafts[draft], CONTEXT, 10**4) if draft in drafts else None
        engine = Engine(stage, batcher, drafting)
        try:
            life_s = 300.0 if is_cached else 0.0
            requests = [replace(each, sharing=Sharing(life_s=life_s)) for each in questions()]
            digest, num_cached = asked_of(engine, requests, alone=alone)
        finally:
            engine.close()
            stage.clear()
        assert digest == expected, (is_cached, is_short, is_lossy)
        assert bool(stage.num_losses) == is_lossy
        assert num_cached == 0 or is_cached
        if not is_lossy:
            assert bool(batcher.num_preempted) == (is_short and not alone)
            assert bool(num_cached) == is_cached
