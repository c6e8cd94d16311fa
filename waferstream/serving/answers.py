"""Answers of a model: text in, pieces of text out, with what they took."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from appliance.serving.batcher import Batcher, Limits
from appliance.serving.engine import Engine
from csnode.inference.cache import PAGE
from csnode.inference.stage import Stage
from csnode.micro_batch import SramLedger
from waferstream.core.serving import (
    AnswerEnded,
    AnswerFailed,
    Event,
    FinishReason,
    Load,
    PromptRead,
    Request,
    Sampling,
)
from waferstream.serving.clock import EmulatedTime, ServiceClock
from waferstream.serving.models.loading import ServedModel, load_model
from waferstream.serving.models.text import StopFilter

CACHE_BYTES = 2 << 30
"""The memory of keys and values on this host; requests wait for room in it, and on the wafers."""


@dataclass(frozen=True)
class Piece:
    """Text that came, and at its end what the answer was."""

    text: str
    end: End | None = None


@dataclass(frozen=True)
class End:
    """The end of an answer."""

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    emulated: EmulatedTime
    measured_s: float
    seed: int
    cached_tokens: int
    """Of the prompt, those that another request had left in the cache."""


class Watcher:
    """What is told of all answers, in the thread of the engine; this one does nothing."""

    def first_token(self, prompt: int, waited_s: float) -> None:
        """Take note of the first token after a prompt."""

    def next_token(self, waited_s: float) -> None:
        """Take note of another token."""

    def ended(self, end: End) -> None:
        """Take note of the end of an answer."""


class Answers:
    """A model that is served in this process; a context, which ends the service."""

    watcher = Watcher()

    def __init__(self, folder: Path) -> None:
        self.model: ServedModel = load_model(folder)
        shape, context = self.model.shape, self.model.context
        self._clock = ServiceClock(shape, context)
        memory, token_bytes = SramLedger("serving", self._clock.sram_bytes), shape.cache_bytes(1)
        memory.lease("weights", shape.weight_bytes)
        stage = Stage(self.model.scores, self.model.vocabulary, context, memory, token_bytes)
        emulated = (self._clock.sram_bytes - shape.weight_bytes) // token_bytes
        pages = min(CACHE_BYTES // self.model.token_bytes, emulated) // PAGE
        self._limits = Limits(min(context, pages * PAGE), pages * PAGE, page=PAGE)
        self._engine = Engine(stage, Batcher(self._limits))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def are_served(self) -> bool:
        """Whether requests are answered: not after a step has failed."""
        return self._engine.is_alive

    @property
    def load(self) -> Load:
        """What waits and runs."""
        return self._engine.load

    @property
    def capacity(self) -> int:
        """The tokens that the cache has room for."""
        return self._limits.cache_tokens

    def close(self) -> None:
        """End; answers that are under way fail. Idempotent."""
        self._engine.close()

    def ask(
        self,
        tokens: tuple[int, ...],
        sampling: Sampling,
        heard: Callable[[Piece | AnswerFailed], None],
        max_tokens: int | None = None,
        stops: Sequence[str] = (),
    ) -> Answer:
        """Ask for the continuation of tokens.

        Args:
            tokens: The prompt.
            sampling: How tokens are drawn.
            heard: Gets the pieces, in another thread.
            max_tokens: The most tokens; None for what the context leaves.
            stops: Texts that end the answer.

        Raises:
            ConfigError: It does not fit the context.
        """
        if max_tokens is None:
            max_tokens = max(1, self._limits.context - len(tokens))
        name = f"req-{uuid.uuid4().hex}"
        request = Request(name, tokens, max_tokens, sampling, self.model.text.ends)
        answer = Answer(self._engine, request, self._clock, self.model, heard, stops, self.watcher)
        self._engine.submit(request, answer.take)
        return answer


class Answer:
    """An answer under way."""

    def __init__(
        self,
        engine: Engine,
        request: Request,
        clock: ServiceClock,
        model: ServedModel,
        heard: Callable[[Piece | AnswerFailed], None],
        stops: Sequence[str],
        watcher: Watcher,
    ) -> None:
        self._engine = engine
        self._request = request
        self._clock = clock
        self._heard = heard
        self._decoder = model.text.decoder(request.prompt)
        self._stop = StopFilter(stops)
        self._watcher = watcher
        self._num_tokens = 0
        self._cached_tokens = 0
        self._began_s = self._newest_s = time.perf_counter()

    def cancel(self) -> None:
        """Let no further token be computed. Idempotent."""
        self._engine.cancel(self._request.name)

    def take(self, event: Event) -> None:
        """Take an event of the engine."""
        if isinstance(event, AnswerFailed):
            self._heard(event)
        elif isinstance(event, AnswerEnded):
            rest = self._stop.feed(self._decoder.end()) + self._stop.end()
            self._heard(Piece(rest, self._end(event.reason)))
        elif isinstance(event, PromptRead):
            self._cached_tokens = event.cached_tokens
        else:
            self._count_token()
            text = self._stop.feed(self._decoder.feed(event.token))
            if self._stop.has_stopped:
                self.cancel()
                self._heard(Piece(text, self._end("stop")))
            elif text:
                self._heard(Piece(text))

    def _count_token(self) -> None:
        """Count a token that was drawn, and tell how long it took."""
        self._num_tokens += 1
        now_s = time.perf_counter()
        waited_s, self._newest_s = now_s - self._newest_s, now_s
        if self._num_tokens == 1:
            self._watcher.first_token(len(self._request.prompt), waited_s)
        else:
            self._watcher.next_token(waited_s)

    def _end(self, reason: FinishReason) -> End:
        prompt = len(self._request.prompt)
        end = End(
            reason,
            prompt,
            self._num_tokens,
            self._clock.of(prompt, max(self._num_tokens, 1)),
            time.perf_counter() - self._began_s,
            self._request.sampling.seed,
            self._cached_tokens,
        )
        self._watcher.ended(end)
        return end
