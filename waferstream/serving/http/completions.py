"""Chats, completions and responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from waferstream.core.errors import WaferStreamError
from waferstream.serving.accounts.callers import Caller
from waferstream.serving.answers import Answers
from waferstream.serving.http.access import caller_of
from waferstream.serving.http.bodies import checked, read
from waferstream.serving.http.chats import ChatRequest
from waferstream.serving.http.errors import RefusedError, check_model, invalid, refusal
from waferstream.serving.http.requests import CompletionRequest, StreamOptions
from waferstream.serving.http.response_requests import ResponseRequest
from waferstream.serving.http.response_shapes import ResponseShape
from waferstream.serving.http.shapes import Shape
from waferstream.serving.http.streams import (
    AnyShape,
    Choices,
    chunks,
    collected,
    events,
    streamed,
    whole,
)

Asked = ChatRequest | CompletionRequest | ResponseRequest

KINDS: Mapping[str, type[Asked]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
    "/v1/responses": ResponseRequest,
}
"""The bodies of requests by their paths."""


class Completions:
    """The paths that continue texts."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.routes = [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/responses", self.respond, methods=["POST"]),
        ]

    async def chat(self, request: Request) -> Response:
        """Answer the messages of a chat."""
        return await self._answer(request, ChatRequest)

    async def complete(self, request: Request) -> Response:
        """Continue a text."""
        return await self._answer(request, CompletionRequest)

    async def respond(self, request: Request) -> Response:
        """Answer items, of which nothing is kept."""
        return await self._answer(request, ResponseRequest)

    async def ask(
        self, owner: Callable[[], Caller], path: str, body: Mapping[str, Any]
    ) -> tuple[int, Mapping[str, Any]]:
        """Answer a request of a batch, after all others; return a status and a body.

        Args:
            owner: Returns who has begun the batch.
            path: The path of the request.
            body: Its body.
        """
        while True:
            try:
                asked = checked(body, KINDS[path])
                if asked.stream:
                    raise invalid("stream", "stream must be false in a batch")
                asked = asked.model_copy(update={"service_tier": "flex"})
                choices, shape = await self._begun(asked, owner())
                try:
                    return 200, await collected(choices, shape)
                finally:
                    choices.cancel()
            except RefusedError as error:
                if error.retry_after_s is None:
                    return error.status, error.body
                await asyncio.sleep(error.retry_after_s)

    async def _answer(self, request: Request, kind: type[Asked]) -> Response:
        asked = await read(request, kind)
        choices, shape = await self._begun(asked, caller_of(request))
        if not asked.stream:
            return await whole(request, choices, shape)
        if isinstance(shape, ResponseShape):
            return streamed(events(choices, shape))
        return streamed(chunks(choices, shape, asked.stream_options or StreamOptions()))

    async def _begun(self, asked: Asked, caller: Caller) -> tuple[Choices, AnyShape]:
        """Return the answers to a request, which are under way, and what they look like."""
        model = self._answers.model
        check_model(asked.model, model.name)
        try:
            questions = await run_in_threadpool(asked.questions, model.text)
        except WaferStreamError as error:
            raise refusal(error) from error
        choices = await Choices.asked(
            self._answers, questions, caller, asked.service_tier, asked.num_choices
        )
        shape = Shape(
            model.name,
            is_chat=not isinstance(asked, CompletionRequest),
            num_choices=asked.num_choices,
            tier=choices.tier,
        )
        if isinstance(asked, ResponseRequest):
            return choices, ResponseShape(asked, shape)
        return choices, shape
