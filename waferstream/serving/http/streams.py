"""Answers on their way to a client: in one object, or as a stream of events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from waferstream.core.errors import WaferStreamError
from waferstream.core.serving import AnswerFailed, Tier
from waferstream.serving.accounts.account import AskedTier, Demand
from waferstream.serving.accounts.callers import Bill, Caller
from waferstream.serving.answer import Answer
from waferstream.serving.answers import Answers
from waferstream.serving.formats.reading import Said
from waferstream.serving.http.errors import RefusedError, refusal
from waferstream.serving.http.requests import StreamOptions
from waferstream.serving.http.response_shapes import ResponseShape
from waferstream.serving.http.shapes import Choice, Shape
from waferstream.serving.questions import Piece, Question

AnyShape = Shape | ResponseShape

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Choices:
    """The answers to one request, from the engine's thread in the loop of the service."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[tuple[int, Piece | AnswerFailed]] = asyncio.Queue()
        self._answers: list[Answer] = []
        self._is_cancelled = False
        self.tier: Tier = "default"

    @classmethod
    async def asked(
        cls,
        answers: Answers,
        questions: Sequence[Question],
        caller: Caller,
        tier: AskedTier | None = None,
        num_choices: int = 1,
    ) -> Self:
        """Return the answers to questions, all or none of which are asked.

        Args:
            answers: The model.
            questions: What is asked: all choices of a prompt, then those of the next one.
            caller: Who asks, and is billed.
            tier: The tier that is asked for.
            num_choices: The choices of a prompt.

        Raises:
            RefusedError: One of them cannot be answered, or the caller may not ask for it.
        """
        choices = cls()
        lengths = [len(question.tokens) for question in questions]
        prompts = (0 if number % num_choices else each for number, each in enumerate(lengths))
        try:
            most = sum(map(answers.most_tokens, questions))
            demand = Demand(answers.model.name, tuple(prompts), most, tier or "default")
            with await caller.begin(demand, choices._refuse) as bill:
                choices.tier = bill.tier
                await run_in_threadpool(choices._ask, answers, questions, bill)
        except BaseException as error:  # cancelled, too
            choices.cancel()
            if isinstance(error, WaferStreamError):
                raise refusal(error) from error
            raise
        return choices

    def _ask(self, answers: Answers, questions: Sequence[Question], bill: Bill) -> None:
        """Ask questions, in a thread, until who waits for it is cancelled."""
        for number, question in enumerate(questions):
            heard = partial(self._put, number)
            if question.echo:
                heard(Piece(Said(question.echo)))
            answer = answers.ask(question, heard, bill.terms(number))
            self._answers.append(answer)
            if self._is_cancelled:
                answer.cancel()
                return

    async def pieces(self) -> AsyncIterator[tuple[int, Piece]]:
        """Yield the pieces of all answers as they come, with the number of their answer.

        Raises:
            RefusedError: One of them has failed.
        """
        num_left = len(self._answers)
        while num_left:
            number, piece = await self._queue.get()
            if isinstance(piece, AnswerFailed):
                raise refusal(piece.error)
            num_left -= piece.end is not None
            yield number, piece

    def prompt_tokens(self, number: int) -> int:
        """Return the tokens of the prompt of an answer."""
        return self._answers[number].prompt_tokens

    def cancel(self) -> None:
        """Let no further token be computed. Idempotent."""
        self._is_cancelled = True
        for answer in self._answers:
            answer.cancel()

    def _refuse(self, error: WaferStreamError) -> None:
        self._put(0, AnswerFailed("", error))

    def _put(self, number: int, piece: Piece | AnswerFailed) -> None:
        with suppress(RuntimeError):  # the loop has ended, and whoever heard
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (number, piece))


async def whole(request: Request, choices: Choices, shape: AnyShape) -> Response:
    """Return the answers once they are complete; cancel them when the client leaves."""
    leaving = asyncio.ensure_future(_until_gone(request))
    collecting = asyncio.ensure_future(collected(choices, shape))
    try:
        await asyncio.wait((leaving, collecting), return_when=asyncio.FIRST_COMPLETED)
        if not collecting.done():
            return Response(status_code=499)
        return JSONResponse(collecting.result())
    finally:
        choices.cancel()
        leaving.cancel()
        collecting.cancel()


async def collected(choices: Choices, shape: AnyShape) -> dict[str, Any]:
    """Return the answers in one object, once they are complete."""
    found: dict[int, list[Piece]] = {}
    async for number, piece in choices.pieces():
        found.setdefault(number, []).append(piece)
    return shape.whole([Choice.of(found[number]) for number in sorted(found)])


async def _until_gone(request: Request) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(0.05)


def streamed(events: AsyncIterator[str]) -> StreamingResponse:
    """Return events as a stream."""
    return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)


async def chunks(choices: Choices, shape: Shape, options: StreamOptions) -> AsyncIterator[str]:
    """Yield answers to chats and completions in chunks; cancel them when the client leaves."""
    begun: set[int] = set()
    ends = {}
    try:
        async for number, piece in choices.pieces():
            if number not in begun and (opening := shape.opening(number)) is not None:
                yield _event(opening)
            begun.add(number)
            if piece.said != Said() or piece.tokens:
                prompt = choices.prompt_tokens(number) if options.continuous_usage_stats else None
                yield _event(shape.piece(number, piece, prompt))
            if piece.end is not None:
                ends[number] = piece.end
                yield _event(shape.closing(number, piece.end))
        if options.include_usage:
            yield _event(shape.usage([ends[number] for number in sorted(ends)]))
        yield "data: [DONE]\n\n"
    except RefusedError as error:  # the stream itself had 200
        yield _event({**error.body, "status_code": error.status})
    finally:
        choices.cancel()


async def events(choices: Choices, shape: ResponseShape) -> AsyncIterator[str]:
    """Yield the events of a response; cancel it when the client leaves."""
    pieces = []
    try:
        for event in shape.opening():
            yield _named(event)
        async for _, piece in choices.pieces():
            pieces.append(piece)
            for event in shape.piece(piece):
                yield _named(event)
        for event in shape.closing(Choice.of(pieces)):
            yield _named(event)
    except RefusedError as error:  # the stream itself had 200
        yield _named(shape.failed(error.body["error"]))
    finally:
        choices.cancel()


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _named(event: Mapping[str, Any]) -> str:
    return f"event: {event['type']}\n{_event(event)}"
