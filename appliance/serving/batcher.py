"""What runs next: the tokens of many requests in one step (continuous batching, Orca, OSDI'22).

It does no I/O: ``submit`` and ``cancel`` change what is there, ``plan`` returns the parts of the
next step, and ``take`` turns their scores into events. What a request gets depends on it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from appliance.serving.sampling import draw
from waferstream.core.errors import ConfigError
from waferstream.core.serving import AnswerEnded, Event, Load, Part, Request, TokenDrawn


@dataclass(frozen=True)
class Limits:
    """What a step and the cache may hold."""

    context: int
    """The most tokens of a sequence."""
    cache_tokens: int
    """The most tokens of all sequences that run; others wait."""
    step_tokens: int = 256
    """The most tokens of a step; longer prompts take several."""
    page: int = 1
    """Tokens by which the memory of a sequence grows."""


@dataclass
class _Sequence:
    request: Request
    tokens: list[int] = field(default_factory=list)
    num_cached: int = 0

    @property
    def longest(self) -> int:
        """The tokens that it may have in the end."""
        return len(self.request.prompt) + self.request.max_tokens


class Batcher:
    """The requests that wait and run."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._waiting: list[_Sequence] = []
        self._running: list[_Sequence] = []
        self._planned: list[tuple[_Sequence, Part]] = []

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not (self._waiting or self._running)

    @property
    def load(self) -> Load:
        """What waits and runs."""
        held = sum(each.num_cached for each in self._running)
        return Load(len(self._running), len(self._waiting), held)

    def submit(self, request: Request) -> None:
        """Let a request wait for its turn.

        Raises:
            ConfigError: It has no token, asks for none, or would be longer than the context.
        """
        each = _Sequence(request, list(request.prompt))
        length, most = len(request.prompt), min(self.limits.context, self.limits.cache_tokens)
        if not length or request.max_tokens < 1:
            raise ConfigError(
                "a request must have a token and ask for one",
                code="empty-request",
                value=f"{length} tokens, max_tokens {request.max_tokens}",
            )
        if each.longest > most or self._reserved(each) > self.limits.cache_tokens:
            raise ConfigError(
                "a request must fit the context of the model",
                code="context-exceeded",
                value=f"{length} tokens of prompt and {request.max_tokens} to come",
                rule=f"at most {most} together",
                remedy="shorten the prompt, or ask for fewer tokens",
            )
        self._waiting.append(each)

    def cancel(self, name: str) -> bool:
        """Forget a request; return whether it was there."""
        held = [*self._waiting, *self._running]
        self._waiting = [each for each in self._waiting if each.request.name != name]
        self._running = [each for each in self._running if each.request.name != name]
        return len(held) != len(self._waiting) + len(self._running)

    def plan(self) -> list[Part]:
        """Return the parts of the next step: of those that answer, then of prompts as they came."""
        self._admit()
        left = self.limits.step_tokens
        self._planned = []
        answering_first = sorted(
            self._running, key=lambda each: len(each.tokens) - each.num_cached > 1
        )
        for each in answering_first:
            new = tuple(each.tokens[each.num_cached : each.num_cached + left])
            if new:
                part = Part(each.request.name, each.num_cached, new)
                self._planned.append((each, part))
                left -= len(new)
        return [part for _, part in self._planned]

    def take(self, scores: np.ndarray) -> list[Event]:
        """Take the scores after the parts of the planned step, (parts, vocabulary)."""
        events: list[Event] = []
        for (each, part), row in zip(self._planned, scores, strict=True):
            each.num_cached += len(part.tokens)
            if each in self._running and each.num_cached == len(each.tokens):
                events += self._next_token(each, row)
        self._planned = []
        return events

    def _next_token(self, each: _Sequence, scores: np.ndarray) -> Sequence[Event]:
        """Draw the next token of a sequence; end its answer where it is the last."""
        request = each.request
        token, logprob = draw(scores, request.sampling, len(each.tokens))
        if token in request.ends:
            self._running.remove(each)
            return [AnswerEnded(request.name, "stop")]
        each.tokens.append(token)
        drawn = TokenDrawn(request.name, token, logprob)
        if len(each.tokens) < each.longest:
            return [drawn]
        self._running.remove(each)
        return [drawn, AnswerEnded(request.name, "length")]

    def _admit(self) -> None:
        """Let requests run in the order in which they came, while the cache has room for them."""
        held = sum(map(self._reserved, self._running))
        while self._waiting and held + self._reserved(self._waiting[0]) <= self.limits.cache_tokens:
            held += self._reserved(self._waiting[0])
            self._running.append(self._waiting.pop(0))

    def _reserved(self, each: _Sequence) -> int:
        """Return the tokens of memory that a sequence may need in the end."""
        return -(-each.longest // self.limits.page) * self.limits.page
