"""What runs next: the tokens of many requests in one step (continuous batching, Orca, OSDI'22).

It does no I/O: ``submit`` and ``cancel`` change what is there, ``plan`` returns the parts of the
next step, and ``take`` turns their scores into events. What a request gets depends on it alone.

Memory is given as sequences grow. Where there is too little, the least urgent one, of these the
last, gives its cache back and is computed again later (preemption by recomputation).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType

import numpy as np

from appliance.serving.cache_directory import CacheDirectory
from appliance.serving.fair_queue import FairQueue
from appliance.serving.guide import MakeGuide, no_guide
from appliance.serving.limits import Limits
from appliance.serving.pace import Pace
from appliance.serving.sampling import draw
from appliance.serving.sequence import Sequence
from waferstream.core.errors import ApplianceRuntimeJobTimeoutError, WaferStreamError
from waferstream.core.serving import (
    AnswerEnded,
    AnswerFailed,
    Event,
    Load,
    Part,
    PromptRead,
    Request,
)


class Batcher:
    """The requests that wait and run.

    Args:
        limits: What a step and the cache may hold.
        now: A clock, in seconds.
        make_guide: What keeps answers to grammars.
    """

    def __init__(
        self,
        limits: Limits,
        now: Callable[[], float] = time.monotonic,
        make_guide: MakeGuide = no_guide,
    ) -> None:
        self.limits = limits
        self._make_guide = make_guide
        self.cache = CacheDirectory(limits.cache_tokens, limits.page, now)
        self._now = now
        self._pace = Pace(now)
        self._waiting = FairQueue(limits.waiting, limits.waiting_of_tenant)
        self._running: list[Sequence] = []
        self._planned: list[tuple[Sequence, Part]] = []
        self._late: list[Event] = []
        self._arrivals = count()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits, and nothing is to be told."""
        return not (self._waiting or self._running or self._late)

    @property
    def load(self) -> Load:
        """What waits and runs."""
        held = self.limits.cache_tokens - self.cache.free
        return Load(len(self._running), len(self._waiting), held)

    def submit(self, request: Request) -> None:
        """Let a request wait for its turn.

        Raises:
            ConfigError: It has no token, asks for none, would be longer than the context, or has a
                grammar that nothing fits.
            ApplianceResourceExhausted: Too many requests of its tenant wait.
            ApplianceRuntimeServerError: Too many requests wait.
        """
        deadline_s = math.inf if request.deadline_s is None else request.deadline_s
        guide = None if request.grammar is None else self._make_guide(request.grammar)
        each = Sequence(request, next(self._arrivals), self._now() + deadline_s, guide)
        self.limits.check(request)
        self._waiting.check(request.tenant)
        self._waiting.put(each)

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
    def wanted(self) -> dict[Sequence, int]:
        """The sequences that answer, and how many of their next tokens may be proposed."""
        answering = [each for each in self._running if each.is_answering]
        share = self._spare // max(1, len(answering))
        return {each: min(share, each.reach) for each in answering}

    @property
    def _spare(self) -> int:
        """The tokens of a step that may be proposed ones."""
        most = min(self.limits.step_tokens, self.limits.proposed_step_tokens)
        return max(0, most - sum(each.num_new for each in self._running))

    def plan(self, proposals: Mapping[str, tuple[int, ...]] = MappingProxyType({})) -> list[Part]:
        """Return the parts of the next step: of those that answer, then of prompts as they came.

        Args:
            proposals: Tokens that may follow those of a request, which the step verifies.
        """
        self.cache.expire()
        self._end_late()
        self._grow()
        self._admit()
        left = self.limits.step_tokens
        spare = self._spare
        self._planned = []
        for each in sorted(
            self._pace.due(self._running), key=lambda e: (not e.is_answering, e.rank)
        ):
            proposed = proposals.get(each.request.name, ()) if each.is_answering else ()
            part = self._part(each, left, proposed[:spare])
            if part.tokens:
                self._planned.append((each, part))
            left -= len(part.tokens)
            spare -= max(0, part.num_scores - 1)
        return [part for _, part in self._planned]

    def take(self, scores: np.ndarray) -> list[Event]:
        """Take the scores that the parts of the planned step ask for, (N, vocabulary)."""
        events, self._late = self._late, []
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
        try:
            return [*events, *self._answer(each, scores)]
        except WaferStreamError as error:  # of its guide or its scores: others go on
            self._leave(each, keeps=False)
            return [*events, AnswerFailed(request.name, error)]

    def _answer(self, each: Sequence, scores: np.ndarray) -> list[Event]:
        """Draw a token that the guide of a sequence allows."""
        request = each.request
        allowed = None if each.guide is None else each.guide.allowed()
        drawn = draw(scores, request, each.tokens, allowed)
        if drawn.token in request.ends:
            self._leave(each)
            return [AnswerEnded(request.name, "stop")]
        each.append(drawn.token)
        self._waiting.charge(request.tenant, 1)
        self._pace.count(request.tenant, 1)
        if not each.is_whole and len(each.tokens) < each.longest:
            return [drawn]
        self._leave(each)
        return [drawn, AnswerEnded(request.name, "stop" if each.is_whole else "length")]

    def _grow(self) -> None:
        """Give those that run memory for all their tokens, which those that came last give back."""
        for each in sorted(self._running, key=lambda each: each.rank):
            while each.cache is not None and not self.cache.grow(each.cache, len(each.tokens)):
                self._preempt(max(self._running, key=lambda each: each.rank))

    def _admit(self) -> None:
        """Let requests run whose turn it is, while there is room, also that of less urgent ones.

        One whose tokens do not fit the step anyway waits: by then the cache may have its beginning.
        """
        while (each := self._waiting.first()) and self._ahead(each) < self.limits.step_tokens:
            while not self._begin(each):
                last = max(self._running, key=lambda each: each.rank, default=each)
                if last.request.priority >= each.request.priority:
                    return
                self._preempt(last)

    def _ahead(self, each: Sequence) -> int:
        """Return the tokens to compute before those of a sequence that waits."""
        urgency = each.request.priority
        return sum(e.num_new for e in self._running if e.request.priority >= urgency)

    def _begin(self, each: Sequence) -> bool:
        """Let a sequence run with what the cache has of it; return whether there was room."""
        if len(self._running) == self.limits.step_tokens:
            return False
        opened = self.cache.open(each.keys(len(each.tokens) - 1), len(each.tokens))
        if opened is None:
            return False
        self._waiting.begin(each)
        self._running.append(each)
        each.cache, each.num_cached = opened
        if not each.has_run:
            each.found = each.num_cached
        return True

    def _end_late(self) -> None:
        """End the answers whose time is over."""
        now = self._now()
        for each in [e for e in (*self._waiting, *self._running) if e.ends_s <= now]:
            self._leave(each)
            request = each.request
            error = ApplianceRuntimeJobTimeoutError(
                "an answer must be complete within its deadline",
                code="deadline-passed",
                value=f"{len(each.tokens) - len(request.prompt)} of {request.max_tokens} tokens",
                rule=f"within {request.deadline_s:g} s",
                remedy="ask for fewer tokens, give it more time, or a higher priority",
            )
            self._late.append(AnswerFailed(request.name, error))

    def _preempt(self, each: Sequence) -> None:
        """Let a sequence wait again."""
        self._leave(each)
        self._waiting.put(each)

    def _leave(self, each: Sequence, *, keeps: bool = True) -> None:
        """Let a sequence neither wait nor run; its beginning is kept for others, if it may be."""
        if each.cache is None:
            self._waiting.remove(each)
        else:
            self.cache.close(each.cache, each.request.sharing.life_s if keeps else 0.0)
            self._running.remove(each)
            each.cache, each.num_cached = None, 0
