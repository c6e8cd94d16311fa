"""An answer under way: tokens in, pieces out."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from appliance.serving.engine import Engine
from appliance.serving.speculation import Prediction
from waferstream.core.errors import ApplianceRuntimeServerError
from waferstream.core.rng import stream_key
from waferstream.core.serving import (
    AnswerEnded,
    AnswerFailed,
    Event,
    FinishReason,
    PromptRead,
    Request,
    Terms,
    TokenDrawn,
    Usage,
)
from waferstream.serving.clock import ServiceClock
from waferstream.serving.formats.calls import Call
from waferstream.serving.formats.reading import Said
from waferstream.serving.models.loading import ServedModel
from waferstream.serving.models.text import StopFilter
from waferstream.serving.questions import End, Heard, Piece, Question, ToldToken, Watcher

log = logging.getLogger("waferstream")


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
        self._reader = question.make_reader()
        self._decoder = model.text.decoder(request.prompt, self._reader.words)
        self._stop = StopFilter(question.stops)
        self._prediction = Prediction(request.prediction)
        self._terms = terms
        self._watcher = watcher
        self._bytes_of = None if question.num_best is None else model.grammars.bytes_of
        self._untold: list[ToldToken] = []
        self._num_tokens = 0
        self._num_thought = 0
        self._num_calls = 0
        self._cached_tokens = 0
        self._num_said = len(question.echo)  # characters, some of which the stops hold back
        self._num_shown = len(question.echo)
        self._began_s = self._newest_s = time.perf_counter()

    @property
    def prompt_tokens(self) -> int:
        """The tokens of its prompt."""
        return len(self._request.prompt)

    def cancel(self) -> None:
        """Let no further token be computed. Idempotent."""
        self._engine.cancel(self._request.name)
        self._settle()

    def take(self, event: Event) -> None:
        """Take an event of the engine; what fails here ends this answer, not the engine."""
        try:
            self._take(event)
        except Exception as fault:
            log.exception("An answer has failed")
            error = ApplianceRuntimeServerError(
                "an answer could not be told", code="serving-failed", value=fault
            )
            self.cancel()
            self._heard(AnswerFailed(self._request.name, error))

    def _take(self, event: Event) -> None:
        match event:
            case AnswerFailed():
                self._settle()
                self._heard(event)
            case AnswerEnded(reason=reason):
                said = self._reader.feed(self._decoder.end()) + self._reader.end()
                self._hear(
                    replace(said, text=self._stop.feed(said.text) + self._stop.end()), reason
                )
            case PromptRead(cached_tokens=cached):
                self._cached_tokens = cached
            case _:
                self._take_token(event)

    def _take_token(self, event: TokenDrawn) -> None:
        self._count_token()
        self._prediction.follow(event.token)
        was_thinking, offset = self._reader.is_thinking, self._num_said
        said = self._reader.feed(self._decoder.feed(event.token))
        is_thought = was_thinking or self._reader.is_thinking
        self._num_thought += is_thought
        self._tell(event, offset, is_thought=is_thought)
        self._num_said += len(said.text)
        said = replace(said, text=self._stop.feed(said.text))
        if self._stop.has_stopped or self._reader.is_over:
            self.cancel()
            self._hear(said, "stop")
        else:
            self._hear(said)

    def _tell(self, event: TokenDrawn, offset: int, *, is_thought: bool) -> None:
        """Let a token be told with the text in which it begins, if it is told at all."""
        if self._bytes_of is None or (is_thought and self._reader.told == "hidden"):
            return
        best = tuple((self._bytes_of(token), logprob) for token, logprob in event.best)
        is_beside = is_thought and self._reader.told == "parsed"
        text = self._bytes_of(event.token)
        self._untold.append(ToldToken(text, event.logprob, best, offset, is_beside))

    def _hear(self, said: Said, reason: FinishReason | None = None) -> None:
        """Give out a piece, if it has anything."""
        self._num_shown += len(said.text)
        said = replace(said, calls=tuple(self._named(call) for call in said.calls))
        end = None if reason is None else self._end(reason)
        tokens = self._told()
        if said != Said() or tokens or end:
            self._heard(Piece(said, tokens, self._num_tokens, end))

    def _told(self) -> tuple[ToldToken, ...]:
        """Return the tokens that begin in text that is shown."""
        shows_all = not (self._stop.has_stopped or self._stop.is_holding)
        begun = [told for told in self._untold if shows_all or told.offset < self._num_shown]
        self._untold = self._untold[len(begun) :]
        return tuple(begun)

    def _named(self, call: Call) -> Call:
        """Return a call with its number, and a name that no other in the same chat has.

        Mistral's templates want nine letters or digits.
        """
        number, self._num_calls = self._num_calls, self._num_calls + 1
        key = stream_key(self._request.sampling.seed, "call", len(self._request.prompt), number)
        return replace(call, number=number, id=f"{key:016x}"[:9])

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
            prompt = len(self._request.prompt)
            self._watcher.first_token(prompt, self._cached_tokens, waited_s)
        else:
            self._watcher.next_token(waited_s)

    def _end(self, reason: FinishReason) -> End:
        prompt = len(self._request.prompt)
        has_called = reason == "stop" and self._num_calls > 0
        end = End(
            "tool_calls" if has_called else reason,
            prompt,
            self._num_tokens,
            self._clock.of(prompt, max(self._num_tokens, 1)),
            time.perf_counter() - self._began_s,
            self._request.sampling.seed,
            self._cached_tokens,
            self._prediction.num_accepted,
            self._prediction.num_rejected,
            self._num_thought,
        )
        self._settle()
        self._watcher.ended(end)
        return end
