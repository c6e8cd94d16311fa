"""Texts as tokens, and back, as vLLM's service has them."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from waferstream.core.errors import WaferStreamError
from waferstream.serving.answers import Answers
from waferstream.serving.http.bodies import read
from waferstream.serving.http.chats import ChatRequest
from waferstream.serving.http.errors import RefusedError, check_model, error_body, failure
from waferstream.serving.http.messages import Message
from waferstream.serving.models.text import Text


class TokenizeRequest(BaseModel):
    """The body of ``POST /tokenize``: a text, or the messages of a chat."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _has_one_text(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("either prompt or messages must be given")
        return self

    def tokens(self, text: Text) -> tuple[int, ...]:
        """Return the tokens that a completion or a chat would have as its prompt."""
        if self.messages is None:
            return text.encode(self.prompt or "")
        return ChatRequest(model="", messages=self.messages).chat(text).tokens


class DetokenizeRequest(BaseModel):
    """The body of ``POST /detokenize``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0)]]


class Tokens:
    """The paths that say what a model reads."""

    def __init__(self, answers: Answers) -> None:
        self._model = answers.model
        self.routes = [
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
        ]

    async def tokenize(self, request: Request) -> Response:
        """Return the tokens of a text or of a chat."""
        asked = await read(request, TokenizeRequest)
        check_model(asked.model or self._model.name, self._model.name)
        try:
            tokens = await run_in_threadpool(asked.tokens, self._model.text)
        except WaferStreamError as error:
            raise RefusedError(*failure(error)) from error
        about = {"count": len(tokens), "max_model_len": self._model.context, "token_strs": None}
        return JSONResponse({"tokens": tokens, **about})

    async def detokenize(self, request: Request) -> Response:
        """Return the text of tokens."""
        asked = await read(request, DetokenizeRequest)
        check_model(asked.model or self._model.name, self._model.name)
        text = self._model.text
        if (worst := max(asked.tokens, default=0)) >= text.vocabulary:
            message = f"tokens: {worst} is no token; they are below {text.vocabulary}"
            body = error_body(message, 400, code="invalid_request", param="tokens")
            raise RefusedError(400, body)
        return JSONResponse({"prompt": await run_in_threadpool(text.decode, asked.tokens)})
