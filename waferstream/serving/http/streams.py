"""Answers on their way to a client: in one object, or as a stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from waferstream.core.serving import AnswerFailed
from waferstream.serving.answers import Answer, End, Piece
from waferstream.serving.http.errors import RefusedError, failure
from waferstream.serving.http.shapes import Shape

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Pieces:
    """Pieces from the engine's thread, in the loop of the service."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Piece | AnswerFailed] = asyncio.Queue()

    def put(self, piece: Piece | AnswerFailed) -> None:
        """Give a piece to who waits, from any thread."""
        self._loop.call_soon_threadsafe(self._queue.put_nowait, piece)

    async def get(self) -> Piece | AnswerFailed:
        """Wait for the next piece."""
        return await self._queue.get()


async def whole(request: Request, pieces: Pieces, answer: Answer, shape: Shape) -> Response:
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


async def _collected(pieces: Pieces) -> tuple[str, End]:
    text = ""
    while True:
        piece = await pieces.get()
        if isinstance(piece, AnswerFailed):
            raise RefusedError(*failure(piece.error))
        text += piece.text
        if piece.end is not None:
            return text, piece.end


async def _until_gone(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.05)


def streamed(
    pieces: Pieces, answer: Answer, shape: Shape, *, tells_usage: bool
) -> StreamingResponse:
    """Return the answer as a stream of events."""
    chunks = _chunks(pieces, answer, shape, tells_usage=tells_usage)
    return StreamingResponse(chunks, media_type="text/event-stream", headers=_HEADERS)


async def _chunks(
    pieces: Pieces, answer: Answer, shape: Shape, *, tells_usage: bool
) -> AsyncIterator[str]:
    """Yield the events of a streamed answer; cancel it when the client leaves."""
    try:
        if (opening := shape.opening()) is not None:
            yield _event(opening)
        while True:
            piece = await pieces.get()
            if isinstance(piece, AnswerFailed):
                status, body = failure(piece.error)
                yield _event({**body, "status_code": status})  # the stream itself had 200
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
