"""Answers of a model: text in, pieces of text out, with what they took."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from appliance.serving.batcher import Batcher
from appliance.serving.engine import Engine
from appliance.serving.limits import Limits
from appliance.serving.sampling import check_tokens
from appliance.serving.speculation import Prediction
from csnode.inference.cache import PAGE
from csnode.micro_batch import SramLedger
from waferstream.core.serving import (
    ANYBODY,
    AnswerEnded,
    AnswerFailed,
    Event,
    FinishReason,
    Load,
    PromptRead,
    Request,
    Sampling,
    Sharing,
    Terms,
    Tier,
    TokenDrawn,
    Usage,
)
from waferstream.numerics.precision import DTYPES
from waferstream.serving.clock import EmulatedTime, ServiceClock
from waferstream.serving.deployment import Deployment
from waferstream.serving.models.loading import ServedModel, load_model
from waferstream.serving.models.text import StopFilter

CACHE_BYTES = 2 << 30
"""The memory of keys and values on this host; requests wait for room in it, and on the wafers."""


_PRIORITIES: Mapping[Tier, int] = {"priority": 1, "default": 0, "flex": -1}


@dataclass(frozen=True)
class Question:
    """What an answer is asked for.

    Attributes:
        tokens: The prompt.
        sampling: How tokens are drawn.
        max_tokens: The most tokens; None for what the context leaves.
        stops: Texts that end the answer.
        num_best: The likeliest tokens that are told beside each token; None tells no tokens.
        echo: Text that is told before the answer.
        grammar: What the answer must be, in the Lark syntax of llguidance.
        sharing: With whom keys and values of the prompt are shared.
        prediction: Tokens that the answer may have.
    """

    tokens: tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None = None
    stops: Sequence[str] = ()
    num_best: int | None = None
    echo: str = ""
    grammar: str | None = None
    sharing: Sharing = field(default_factory=Sharing)
    prediction: tuple[int, ...] = ()


@dataclass(frozen=True)
class ToldToken:
    """A token of an answer with the logarithm of its probability."""

    text: bytes
    logprob: float
    best: tuple[tuple[bytes, float], ...]
    """The likeliest ones in its place, the likeliest first."""
    offset: int
    """The characters of the answer before it."""


@dataclass(frozen=True)
class Piece:
    """Text that came, and at its end what the answer was."""

    text: str
    tokens: tuple[ToldToken, ...] = ()
    """The tokens that begin in the text, if they are told."""
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
    accepted_tokens: int
    """Of the prediction, those that the answer has."""
    rejected_tokens: int
    """Of the prediction, all others."""


class Watcher:
    """What is told of all answers, in the thread of the engine; this one does nothing."""

    def first_token(self, prompt: int, waited_s: float) -> None:
        """Take note of the first token after a prompt."""

    def next_token(self, waited_s: float) -> None:
        """Take note of another token."""

    def ended(self, end: End) -> None:
        """Take note of the end of an answer."""


Heard = Callable[[Piece | AnswerFailed], None]
"""What the pieces of an answer are given to, in another thread."""


class Answers:
    """A model that is served in this process; a context, which ends the service."""

    watcher = Watcher()

    def __init__(self, deployment: Deployment) -> None:
        self.model: ServedModel = load_model(deployment.place, DTYPES[deployment.dtype])
        shape, context = self.model.shape, self.model.context
        self._clock = ServiceClock(shape, context)
        memory, token_bytes = SramLedger("serving", self._clock.sram_bytes), shape.cache_bytes(1)
        memory.lease("weights", shape.weight_bytes + 2 * shape.head_bytes)
        pages = min(CACHE_BYTES // self.model.token_bytes, self._clock.cache_tokens) // PAGE
        self._limits = Limits(min(context, pages * PAGE), pages * PAGE, page=PAGE)
        batcher = Batcher(self._limits, make_guide=self.model.grammars.guide)
        self._wafers = deployment.start(self.model, memory, token_bytes)
        self._engine = Engine(self._wafers, batcher)

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
        self._wafers.close()

    def most_tokens(self, question: Question) -> int:
        """Return the most tokens that the answer to a question may have."""
        left = self._limits.context - len(question.tokens)
        return max(1, left) if question.max_tokens is None else question.max_tokens

    def ask(self, question: Question, heard: Heard, terms: Terms = ANYBODY) -> Answer:
        """Ask for the continuation of tokens.

        Args:
            question: What is asked.
            heard: Gets the pieces.
            terms: In whose name it is computed.

        Raises:
            ConfigError: It does not fit the context, names tokens that the model has not, or has a
                grammar that nothing fits.
        """
        if question.grammar is not None:
            self.model.grammars.guide(question.grammar)  # compiled here, not before the next step
        check_tokens(dict(question.sampling.bias), self.model.vocabulary, "logit_bias")
        request = Request(
            f"req-{uuid.uuid4().hex}",
            question.tokens,
            self.most_tokens(question),
            question.sampling,
            self.model.text.ends,
            grammar=question.grammar,
            tenant=terms.tenant,
            priority=_PRIORITIES[terms.tier],
            reserved_tokens_per_s=terms.reserved_tokens_per_s,
            sharing=question.sharing,
            prediction=question.prediction,
            num_best=question.num_best or 0,
        )
        answer = Answer(
            self._engine, request, self._clock, self.model, heard, question, terms, self.watcher
        )
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
        heard: Heard,
        question: Question,
        terms: Terms,
        watcher: Watcher,
    ) -> None:
        self._engine = engine
        self._request = request
        self._clock = clock
        self._heard = heard
        self._decoder = model.text.decoder(request.prompt)
        self._stop = StopFilter(question.stops)
        self._terms = terms
        self._watcher = watcher
        tells = question.num_best is not None
        self._told = _ToldTokens(model.grammars.bytes_of) if tells else None
        self._num_tokens = 0
        self._cached_tokens = 0
        self._prediction = Prediction(request.prediction)
        self._num_decoded = len(question.echo)  # characters
        self._num_shown = len(question.echo)
        self._began_s = self._newest_s = time.perf_counter()

    def cancel(self) -> None:
        """Let no further token be computed. Idempotent."""
        self._engine.cancel(self._request.name)
        self._settle()

    def take(self, event: Event) -> None:
        """Take an event of the engine."""
        if isinstance(event, AnswerFailed):
            self._settle()
            self._heard(event)
        elif isinstance(event, AnswerEnded):
            rest = self._stop.feed(self._decoder.end()) + self._stop.end()
            self._hear(rest, event.reason)
        elif isinstance(event, PromptRead):
            self._cached_tokens = event.cached_tokens
        else:
            self._take_token(event)

    def _take_token(self, event: TokenDrawn) -> None:
        self._count_token()
        self._prediction.follow(event.token)
        if self._told is not None:
            self._told.add(event, self._num_decoded)
        decoded = self._decoder.feed(event.token)
        self._num_decoded += len(decoded)
        text = self._stop.feed(decoded)
        if self._stop.has_stopped:
            self.cancel()
            self._hear(text, "stop")
        else:
            self._hear(text)

    def _hear(self, text: str, reason: FinishReason | None = None) -> None:
        """Give out a piece, if it has anything."""
        end = None if reason is None else self._end(reason)
        self._num_shown += len(text)
        shows_all = not (self._stop.has_stopped or self._stop.is_holding)
        shown = math.inf if shows_all else self._num_shown
        tokens = () if self._told is None else self._told.begun_before(shown)
        if text or tokens or end:
            self._heard(Piece(text, tokens, end))

    def _settle(self) -> None:
        """Tell what the answer has used."""
        prompt = len(self._request.prompt)
        self._terms.settle(Usage(prompt, self._cached_tokens, self._num_tokens))

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
            self._prediction.num_accepted,
            self._prediction.num_rejected,
        )
        self._settle()
        self._watcher.ended(end)
        return end


class _ToldTokens:
    """Tokens that are told with the text in which they begin."""

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        self._bytes_of = bytes_of
        self._waiting: list[ToldToken] = []

    def add(self, event: TokenDrawn, offset: int) -> None:
        """Let a token wait for the text after an offset."""
        best = tuple((self._bytes_of(token), logprob) for token, logprob in event.best)
        told = ToldToken(self._bytes_of(event.token), event.logprob, best, offset)
        self._waiting.append(told)

    def begun_before(self, offset: float) -> tuple[ToldToken, ...]:
        """Return the tokens that begin before an offset."""
        begun = [told for told in self._waiting if told.offset < offset]
        self._waiting = self._waiting[len(begun) :]
        return tuple(begun)
