"""The HTTP service: paths and their handlers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from waferstream.core.errors import WaferStreamError, did_you_mean
from waferstream.core.serving import AnswerFailed
from waferstream.serving.answers import Answer, Answers, End, Piece
from waferstream.serving.requests import (
    ChatRequest,
    CompletionRequest,
    Shape,
    error_body,
    failure,
    fault_of,
)
from waferstream.version import VERSION

BODY_BYTES = 1 << 20
"""The largest body that is read."""

_STREAM = {"cache-control": "no-cache", "x-accel-buffering": "no"}

Asked = ChatRequest | CompletionRequest


class _RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(status)
        self.status, self.body = status, body


def make_app(answers: Answers) -> Starlette:
    """Return the service of a model."""
    service = _Service(answers)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", service.chat, methods=["POST"]),
            Route("/v1/completions", service.complete, methods=["POST"]),
            Route("/v1/models", service.models),
            Route("/v1/models/{name:path}", service.model),
            Route("/health", service.health),
        ],
        exception_handlers={404: _no_path, 405: _no_path, _RefusedError: _refused},
    )


class _Service:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._name = answers.model.name

    async def health(self, _: Request) -> Response:
        """Say whether requests are answered, and what the service is."""
        is_well = self._answers.are_served
        about = {"model": self._name, "version": VERSION}
        status = {"status": "ok" if is_well else "failed", **about}
        return JSONResponse(status, status_code=200 if is_well else 503)

    async def models(self, _: Request) -> Response:
        """List the one model."""
        return JSONResponse({"object": "list", "data": [self._about()]})

    async def model(self, request: Request) -> Response:
        """Describe a model."""
        self._check_model(request.path_params["name"])
        return JSONResponse(self._about())

    async def chat(self, request: Request) -> Response:
        """Answer the messages of a chat."""
        return await self._answer(request, ChatRequest)

    async def complete(self, request: Request) -> Response:
        """Continue a text."""
        return await self._answer(request, CompletionRequest)

    async def _answer(self, request: Request, kind: type[Asked]) -> Response:
        asked = await _read(request, kind)
        self._check_model(asked.model)
        pieces = _Pieces()
        try:
            tokens = asked.tokens(self._answers.model.text)
            answer = self._answers.ask(
                tokens, asked.sampling(), pieces.put, asked.most_tokens, asked.stops
            )
        except WaferStreamError as error:
            raise _RefusedError(*failure(error)) from error
        shape = Shape(self._name, is_chat=isinstance(asked, ChatRequest))
        if asked.stream:
            chunks = _chunks(pieces, answer, shape, tells_usage=asked.tells_usage)
            return StreamingResponse(chunks, media_type="text/event-stream", headers=_STREAM)
        return await _whole(request, pieces, answer, shape)

    def _check_model(self, name: str) -> None:
        if name != self._name:
            hint = did_you_mean(name, [self._name]) or f"this service has {self._name}"
            message = f"the model {name!r} does not exist; {hint}"
            body = error_body(message, 404, code="model_not_found", param="model")
            raise _RefusedError(404, body)

    def _about(self) -> dict[str, Any]:
        created = int(self._answers.model.weights.stat().st_mtime)
        return {
            "id": self._name, "object": "model", "created": created, "owned_by": "waferstream",
            "context_length": self._answers.model.context,
        }  # fmt: skip


class _Pieces:
    """Pieces from the engine's thread, in the loop of the service."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Piece | AnswerFailed] = asyncio.Queue()

    def put(self, piece: Piece | AnswerFailed) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)

    async def get(self) -> Piece | AnswerFailed:
        return await self._queue.get()


async def _read(request: Request, kind: type[Asked]) -> Asked:
    """Return the body of a request, checked."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            message = f"the body must have at most {BODY_BYTES} bytes"
            raise _RefusedError(413, error_body(message, 413, code="body_too_large"))
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as error:
        message, param = fault_of(dict(error.errors()[0]))
        body_of_error = error_body(message, 400, code="invalid_request", param=param)
        raise _RefusedError(400, body_of_error) from error


async def _whole(request: Request, pieces: _Pieces, answer: Answer, shape: Shape) -> Response:
    """Return the answer once it is complete; cancel it when the client leaves."""
    leaving = asyncio.ensure_future(_until_gone(request))
    collecting = asyncio.ensure_future(_collected(pieces))
    try:
        await asyncio.wait((leaving, collecting), return_when=asyncio.FIRST_COMPLETED)
        if not collecting.done():
            return Response(status_code=499)
        text, end = collecting.result()
        return JSONResponse(shape.whole(text, end))
    finally:
        answer.cancel()
        leaving.cancel()
        collecting.cancel()


async def _collected(pieces: _Pieces) -> tuple[str, End]:
    text = ""
    while True:
        piece = await pieces.get()
        if isinstance(piece, AnswerFailed):
            raise _RefusedError(*failure(piece.error))
        text += piece.text
        if piece.end is not None:
            return text, piece.end


async def _until_gone(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.05)


async def _chunks(
    pieces: _Pieces, answer: Answer, shape: Shape, *, tells_usage: bool
) -> AsyncIterator[str]:
    """Yield the events of a streamed answer; cancel it when the client leaves."""
    try:
        if (opening := shape.opening()) is not None:
            yield _event(opening)
        while True:
            piece = await pieces.get()
            if isinstance(piece, AnswerFailed):
                yield _event(failure(piece.error)[1])
                return
            if piece.text:
                yield _event(shape.piece(piece.text))
            if piece.end is not None:
                yield _event(shape.closing(piece.end))
                if tells_usage:
                    yield _event(shape.usage(piece.end))
                yield "data: [DONE]\n\n"
                return
    finally:
        answer.cancel()


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


async def _no_path(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    message = f"{request.method} {request.url.path} does not exist here"
    return JSONResponse(error_body(message, status, code="unknown_url"), status_code=status)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, _RefusedError)
    return JSONResponse(error.body, status_code=error.status)
