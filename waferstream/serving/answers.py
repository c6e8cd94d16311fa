"""Answers of a model: questions in, pieces of answers out, with what they took."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Self

from appliance.serving.batcher import Batcher
from appliance.serving.draft import Draft
from appliance.serving.engine import Engine
from appliance.serving.limits import Limits
from appliance.serving.sampling import check_tokens
from csnode.inference.cache import PAGE
from waferstream.core.serving import (
    ANYBODY,
    Load,
    Request,
    Terms,
    Tier,
)
from waferstream.machine.regions.service import Service
from waferstream.serving.answer import Answer
from waferstream.serving.clock import ServiceClock
from waferstream.serving.deployment import Deployment
from waferstream.serving.models.loading import ServedModel
from waferstream.serving.questions import Heard, Question, Watcher

_PRIORITIES: Mapping[Tier, int] = {"priority": 1, "default": 0, "flex": -1}


class Answers:
    """A model that is served in this process; a context, which ends the service."""

    watcher = Watcher()

    def __init__(self, deployment: Deployment) -> None:
        self.model: ServedModel = deployment.load()
        draft = deployment.load_draft(self.model)
        self.clock = ServiceClock(self.model.shape, self.model.context)
        with ExitStack() as stack:
            self._wafers, room = deployment.start(self.model, self.clock)
            stack.callback(self._wafers.close)
            proposer = None
            if draft is not None:
                clock = ServiceClock(draft.shape, draft.context)
                its_wafers, its_room = deployment.start_draft(draft, clock)
                stack.callback(its_wafers.close)
                proposer = Draft(its_wafers, draft.context, its_room)
            pages = room // PAGE
            self._limits = Limits(min(self.model.context, pages * PAGE), pages * PAGE, page=PAGE)
            batcher = Batcher(self._limits, make_guide=self.model.grammars.guide)
            self._engine = Engine(self._wafers, batcher, proposer)
            stack.callback(self._engine.close)
            self._ends = stack.pop_all()

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
    def service(self) -> Service:
        """The emulated machine that the model lies on."""
        return self.clock.service

    @property
    def capacity(self) -> int:
        """The tokens that the cache has room for."""
        return self._limits.cache_tokens

    def take_cycles(self) -> Mapping[str, int]:
        """Return the cycles of kernels that ``wafer-cycles`` has simulated since, while idle."""
        return self._wafers.take_cycles()

    def close(self) -> None:
        """End; answers that are under way fail. Idempotent."""
        self._ends.close()

    def most_tokens(self, question: Question) -> int:
        """Return the most tokens that the answer to a question may have.

        Raises:
            ConfigError: It does not fit the context.
        """
        left = self._limits.context - len(question.tokens)
        most = max(1, left) if question.max_tokens is None else question.max_tokens
        self._limits.check(Request("", question.tokens, most, question.sampling))
        return most

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
            frozenset() if question.ignores_ends else self.model.text.ends,
            sharing=question.sharing,
            prediction=question.prediction,
            deadline_s=question.deadline_s,
            grammar=question.grammar,
            tenant=terms.tenant,
            priority=_PRIORITIES[terms.tier],
            reserved_tokens_per_s=terms.reserved_tokens_per_s,
            num_best=question.num_best or 0,
        )
        answer = Answer(
            self._engine, request, self.clock, self.model, heard, question, terms, self.watcher
        )
        self._engine.submit(request, answer.take)
        return answer
