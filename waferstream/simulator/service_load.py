"""Requests of many users over the emulated pipeline of a service, event by event.

A *job* is a part of a prompt or a pass that gives tokens. Jobs enter the pipeline in the order in
which they become ready and never overtake one another. In a row of stages that is a queue at its
busiest stage: a job enters when the one before has left that stage, and comes out after the time
that it takes alone, or behind the one before.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from waferstream.core.errors import ConfigError
from waferstream.machine.regions.service import Service

_ROWS = 64
"""Tokens of a prompt that enter one by one, and count as one job."""


@dataclass(frozen=True)
class Asked:
    """A request."""

    arrival_ps: int
    prompt: int
    output: int
    follows: Asked | None = field(default=None, repr=False)
    """What the same user asks when this one has ended, its arrival counted from then."""


class Answered(NamedTuple):
    """When a request came, got its first token, and ended."""

    asked: Asked
    arrival_ps: int
    first_ps: int
    end_ps: int


@dataclass(frozen=True)
class Load:
    """What a service has answered.

    Attributes:
        answered: Requests in the order in which they ended.
        duration_ps: From the first arrival to the last end.
        busy_ps: Time for which the busiest stage had work.
    """

    answered: tuple[Answered, ...]
    duration_ps: int
    busy_ps: int


class _Job(NamedTuple):
    """A job, and what of it is where."""

    busiest_ps: int
    """Time in the busiest stage."""
    alone_ps: int
    """Time through all stages."""
    tokens: float
    """Tokens of the answer that it gives."""


@dataclass(slots=True)
class _Sequence:
    """A request under way."""

    asked: Asked
    arrival_ps: int
    parts: deque[_Job]
    """What is left of its prompt."""
    tokens: float = 0.0
    first_ps: int = 0


def simulate(service: Service, requests: Sequence[Asked]) -> Load:
    """Return what a service answers.

    Args:
        service: The model on its wafers.
        requests: Who asks what and when.

    Raises:
        ConfigError: There are no requests, or one exceeds the cache.
    """
    _check(service, requests)
    return _Simulation(service, requests).run()


class _Simulation:
    """The state of a simulation."""

    def __init__(self, service: Service, requests: Sequence[Asked]) -> None:
        self._service = service
        self._room = service.layout.cache_tokens
        self._side = service.layout.region.side
        self._under_way = 0
        self._waiting: deque[tuple[Asked, int]] = deque()
        self._ready: list[tuple[int, int, _Sequence | Asked]] = []
        self._answered: list[Answered] = []
        self._count = self._free_ps = self._out_ps = self._busy_ps = 0
        self._pass_at = lru_cache(None)(self._make_pass)
        self._parts_of = lru_cache(None)(self._make_parts)
        for asked in requests:
            self._push(asked.arrival_ps, asked)

    def run(self) -> Load:
        """Run until all requests have ended."""
        begin = self._ready[0][0]
        while self._ready:
            ready_ps, _, item = heapq.heappop(self._ready)
            if isinstance(item, Asked):
                self._waiting.append((item, ready_ps))
                self._admit(ready_ps)
            else:
                self._step(item, ready_ps)
        return Load(tuple(self._answered), self._answered[-1].end_ps - begin, self._busy_ps)

    def _push(self, ready_ps: int, item: _Sequence | Asked) -> None:
        self._count += 1
        heapq.heappush(self._ready, (ready_ps, self._count, item))

    def _admit(self, now_ps: int) -> None:
        """Let requests that wait begin, in their order, while the cache has room for all of one."""
        while self._waiting and _tokens(self._waiting[0][0]) <= self._room:
            asked, arrival_ps = self._waiting.popleft()
            self._room -= _tokens(asked)
            self._under_way += 1
            parts = deque(self._parts_of(asked.prompt))
            self._push(now_ps, _Sequence(asked, arrival_ps, parts))

    def _step(self, sequence: _Sequence, ready_ps: int) -> None:
        """Send the next job of a sequence through the pipeline."""
        if sequence.parts:
            job = sequence.parts.popleft()
        else:
            context = sequence.asked.prompt + int(sequence.tokens)
            job = self._pass_at(-(-context // self._side), self._under_way)
        begin = max(ready_ps, self._free_ps)
        self._free_ps = begin + job.busiest_ps
        self._busy_ps += job.busiest_ps
        self._out_ps = max(begin + job.alone_ps, self._out_ps + job.busiest_ps)
        sequence.tokens += job.tokens
        if sequence.parts:
            self._push(self._free_ps, sequence)  # the next part follows close behind
            return
        sequence.first_ps = sequence.first_ps or self._out_ps
        if sequence.tokens < sequence.asked.output:
            self._push(self._out_ps, sequence)
        else:
            self._end(sequence, self._out_ps)

    def _end(self, sequence: _Sequence, end_ps: int) -> None:
        asked = sequence.asked
        self._answered.append(Answered(asked, sequence.arrival_ps, sequence.first_ps, end_ps))
        self._room += _tokens(asked)
        self._under_way -= 1
        if asked.follows is not None:
            self._push(end_ps + asked.follows.arrival_ps, asked.follows)
        self._admit(end_ps)

    def _make_pass(self, tile: int, users: int) -> _Job:
        """Return the job of a pass that attends to a tile of context.

        A draft guesses as many tokens as stages would be empty otherwise.
        """
        service, context = self._service, tile * self._side
        shared = service.pipeline.full_speed_users(context) // users
        guesses = max(0, min(service.guesses(context), shared - 1))
        rows_ps = (1 + guesses) * service.pipeline.interval_ps(context)
        alone_ps = service.round(context, guesses).total_ps
        return _Job(rows_ps, alone_ps, service.tokens_of_round(context, guesses))

    def _make_parts(self, prompt: int) -> list[_Job]:
        """Return the jobs of a prompt, of which the last gives the first token."""
        pipeline = self._service.pipeline
        layout, chunks = pipeline.layout, pipeline.chunks(prompt)
        head_ps = pipeline.token(1).total_ps - pipeline.chunk(1, 0).total_ps
        jobs = []
        step = _ROWS if chunks[-1][0] == 1 else 1
        for index in range(0, len(chunks), step):
            group = chunks[index : index + step]
            layers_ps = pipeline.chunk(*group[-1]).total_ps
            each_ps = layout.busiest_layers * layers_ps // layout.decoder.layers
            alone_ps = layers_ps + (len(group) - 1) * each_ps
            jobs.append(_Job(len(group) * each_ps, alone_ps, 0.0))
        last = jobs[-1]
        return [*jobs[:-1], _Job(last.busiest_ps, last.alone_ps + head_ps, 1.0)]


def _tokens(asked: Asked) -> int:
    """Return the tokens that a request may have in the cache."""
    return asked.prompt + asked.output


def _check(service: Service, requests: Sequence[Asked]) -> None:
    if not requests:
        raise ConfigError("requests must be at least one", code="no-requests", value=0)
    longest = max(map(_tokens, _every(requests)))
    if longest > service.layout.cache_tokens:
        raise ConfigError(
            "a request must fit the cache",
            code="request-exceeds-cache",
            value=f"{longest:,} tokens",
            rule=f"at most {service.layout.cache_tokens:,} beside the weights",
            remedy="ask for fewer tokens, or allow more wafers (--wafers)",
        )


def _every(requests: Sequence[Asked]) -> Iterator[Asked]:
    """Yield requests with those that follow them."""
    for each in requests:
        asked: Asked | None = each
        while asked is not None:
            yield asked
            asked = asked.follows
