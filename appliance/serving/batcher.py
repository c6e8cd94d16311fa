"""What runs next: the tokens of many requests in one step (continuous batching, Orca, OSDI'22).

It does no I/O: ``submit`` and ``cancel`` change what is there, ``plan`` returns the parts of the
next step, and ``take`` turns their scores into events. What a request gets depends on it alone.

Memory is given as sequences grow. Where there is too little, the one that came last gives its
cache back and is computed again later (preemption by recomputation).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

import numpy as np

from appliance.serving.cache_directory import CacheDirectory
from appliance.serving.sampling import draw
from appliance.serving.sequence import Sequence
from waferstream.core.errors import ConfigError
from waferstream.core.serving import AnswerEnded, Event, Load, Part, PromptRead, Request


@dataclass(frozen=True)
class Limits:
    """What a step and the cache may hold."""

    context: int
    """The most tokens of a sequence."""
    cache_tokens: int
    """The most tokens of all sequences in the cache."""
    step_tokens: int = 256
    """The most tokens of a step, and so of sequences that run; longer prompts take several."""
    proposed_step_tokens: int = 16
    """Tokens to which proposed ones may fill a step: it takes little more time than with one, as
    weights are read once."""
    page: int = 1
    """Tokens by which the memory of a sequence grows."""


class Batcher:
    """The requests that wait and run.

    Args:
        limits: What a step and the cache may hold.
        now: A clock, in seconds.
    """

    def __init__(self, limits: Limits, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.cache = CacheDirectory(limits.cache_tokens, limits.page, now)
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._planned: list[tuple[Sequence, Part]] = []
        self._arrivals = count()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not (self._waiting or self._running)

    @property
    def load(self) -> Load:
        """What waits and runs."""
        held = self.limits.cache_tokens - self.cache.free
        return Load(len(self._running), len(self._waiting), held)

    def submit(self, request: Request) -> None:
        """Let a request wait for its turn.

        Raises:
            ConfigError: It has no token, asks for none, or would be longer than the context.
        """
        each = Sequence(request, next(self._arrivals))
        length, most = len(request.prompt), min(self.limits.context, self.limits.cache_tokens)
        if not length or request.max_tokens < 1:
            raise ConfigError(
                "a request must have a token and ask for one",
                code="empty-request",
                value=f"{length} tokens, max_tokens {request.max_tokens}",
            )
        if each.longest > most or self.cache.pages(each.longest) > self.limits.cache_tokens:
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
        held = [each for each in (*self._waiting, *self._running) if each.request.name == name]
        for each in held:
            self._leave(each)
        return bool(held)

    def restart(self) -> None:
        """Compute all sequences again: the stage has lost its cache."""
        self._planned = []
        for each in list(self._running):
            self._preempt(each)
        self.cache.clear()

    @property
    def answering(self) -> list[Sequence]:
        """The sequences whose next tokens may be proposed."""
        return [each for each in self._running if each.is_answering]

    def plan(self, proposals: Mapping[str, tuple[int, ...]] = MappingProxyType({})) -> list[Part]:
        """Return the parts of the next step: of those that answer, then of prompts as they came.

        Args:
            proposals: Tokens that may follow those of a request, which the step verifies.
        """
        self.cache.expire()
        self._grow()
        self._admit()
        left = self.limits.step_tokens
        spare = min(left, self.limits.proposed_step_tokens) - sum(e.num_new for e in self._running)
        self._planned = []
        for each in sorted(self._running, key=lambda each: not each.is_answering):
            proposed = proposals.get(each.request.name, ()) if each.is_answering else ()
            part = self._part(each, left, proposed[: max(0, spare)])
            if part.tokens:
                self._planned.append((each, part))
            left -= len(part.tokens)
            spare -= max(0, part.num_scores - 1)
        return [part for _, part in self._planned]

    def take(self, scores: np.ndarray) -> list[Event]:
        """Take the scores that the parts of the planned step ask for, (N, vocabulary)."""
        events: list[Event] = []
        rows = iter(scores)
        for each, part in self._planned:
            asked = [next(rows) for _ in range(part.num_scores)]
            if each.cache == part.sequence:  # it has not been cancelled
                events += self._advance(each, part, asked)
        self._planned = []
        return events

    def _part(self, each: Sequence, most: int, proposed: tuple[int, ...]) -> Part:
        """Return the next tokens of a sequence, and proposed ones if there is memory for them."""
        assert each.cache is not None
        new = tuple(each.tokens[each.num_cached : each.num_cached + most])
        if proposed and not self.cache.grow(
            each.cache, len(each.tokens) + len(proposed), evicts=False
        ):
            proposed = ()
        num_scores = 1 + len(proposed) if len(new) == each.num_new else 0
        return Part(each.cache, each.num_cached, new + proposed, num_scores)

    def _advance(self, each: Sequence, part: Part, scores: list[np.ndarray]) -> list[Event]:
        """Draw a token after what is computed, and after each proposed one that is drawn."""
        proposed = part.tokens[len(part.tokens) - len(scores) + 1 :] if scores else ()
        each.num_cached += len(part.tokens) - len(proposed)
        self.cache.extend(part.sequence, each.keys(each.num_cached))
        events: list[Event] = []
        num_right = 0
        for row in scores:
            events += self._next_token(each, row)
            is_right = proposed[num_right : num_right + 1] == (each.tokens[-1],)
            if each.cache is None or not is_right:
                break
            num_right += 1
        if each.cache is not None:
            each.num_cached += num_right
            each.learn(len(proposed), num_right)
        return events

    def _next_token(self, each: Sequence, scores: np.ndarray) -> list[Event]:
        """Draw the next token of a sequence; end its answer where it is the last."""
        request = each.request
        events: list[Event] = []
        if len(each.tokens) == len(request.prompt):
            events.append(PromptRead(request.name, each.found or 0))
        drawn = draw(scores, request, each.tokens)
        if drawn.token in request.ends:
            self._leave(each)
            return [*events, AnswerEnded(request.name, "stop")]
        each.append(drawn.token)
        events.append(drawn)
        if len(each.tokens) == each.longest:
            self._leave(each)
            events.append(AnswerEnded(request.name, "length"))
        return events

    def _grow(self) -> None:
        """Give those that run memory for all their tokens, which those that came last give back."""
        for each in sorted(self._running, key=lambda each: each.rank):
            while each.cache is not None and not self.cache.grow(each.cache, len(each.tokens)):
                self._preempt(max(self._running, key=lambda each: each.rank))

    def _admit(self) -> None:
        """Let requests run in the order in which they came, while the cache has room for them."""
        while self._waiting and len(self._running) < self.limits.step_tokens:
            each = min(self._waiting, key=lambda each: each.rank)
            opened = self.cache.open(each.keys(len(each.tokens) - 1), len(each.tokens))
            if opened is None:
                return
            each.cache, each.num_cached = opened
            if each.found is None:
                each.found = each.num_cached
            self._waiting.remove(each)
            self._running.append(each)

    def _preempt(self, each: Sequence) -> None:
        """Let a sequence wait again."""
        self._leave(each)
        self._waiting.append(each)

    def _leave(self, each: Sequence) -> None:
        """Let a sequence neither wait nor run; its beginning is kept for others."""
        if each.cache is None:
            self._waiting.remove(each)
        else:
            self.cache.close(each.cache, each.request.cache_s)
            self._running.remove(each)
            each.cache, each.num_cached = None, 0
