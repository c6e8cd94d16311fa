"""Requests and responses of the API, as OpenAI's clients send and read them.

What we do not compute is refused; times stand beside a response as the vendor's service has them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, model_validator

from waferstream.core.error_status import status_of
from waferstream.core.errors import WaferStreamError
from waferstream.core.serving import Sampling
from waferstream.serving.answers import End
from waferstream.serving.text import Text

Count = Annotated[int, Field(ge=1)]
Stop = Annotated[str, Field(min_length=1)]

_TYPES = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error"}
"""The type of an error by its status; others are failures of the service."""


class _Asked(BaseModel):
    """What every request may ask for; a key that is not here is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Count | None = None
    seed: int | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=4)] | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] = 1
    user: str | None = None

    def sampling(self) -> Sampling:
        """Return how tokens are drawn; a seed that is not given is drawn now."""
        seed = secrets.randbits(31) if self.seed is None else self.seed
        return Sampling(seed, self.temperature, self.top_p, self.top_k)

    @property
    def stops(self) -> list[str]:
        """The texts that end the answer."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    @property
    def tells_usage(self) -> bool:
        """Whether a stream ends with a chunk of its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class StreamOptions(BaseModel):
    """How an answer is streamed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    include_usage: bool = False


class Message(BaseModel):
    """A message of a chat."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """The text of the message."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class TextPart(BaseModel):
    """A part of the content of a message."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["text"]
    text: str


class ChatRequest(_Asked):
    """The body of ``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Count | None = None
    max_tokens: Count | None = None

    @model_validator(mode="after")
    def _has_one_limit(self) -> Self:
        if self.max_completion_tokens is not None and self.max_tokens is not None:
            raise ValueError("max_completion_tokens and max_tokens exclude each other")
        return self

    def tokens(self, text: Text) -> tuple[int, ...]:
        """Return the tokens of the messages; ConfigError if the model does not know them."""
        return text.encode_chat(
            [{"role": each.role, "content": each.text} for each in self.messages]
        )

    @property
    def most_tokens(self) -> int | None:
        """The most tokens of the answer."""
        return self.max_completion_tokens or self.max_tokens


class CompletionRequest(_Asked):
    """The body of ``POST /v1/completions``."""

    prompt: str
    max_tokens: Count | None = 16
    echo: Literal[False] = False

    def tokens(self, text: Text) -> tuple[int, ...]:
        """Return the tokens of the prompt."""
        return text.encode(self.prompt)

    @property
    def most_tokens(self) -> int | None:
        """The most tokens of the answer."""
        return self.max_tokens


def fault_of(error: dict[str, Any]) -> tuple[str, str | None]:
    """Return a sentence about a fault that pydantic has found, and the parameter it is in."""
    place = ".".join(str(part) for part in error["loc"] if "-" not in str(part))
    if error["type"] == "extra_forbidden":
        return f"parameter {place} is not supported", place
    return f"{place or 'the body'}: {error['msg']}", place or None


@dataclass(frozen=True)
class Shape:
    """The objects that one answer consists of: of a chat, or of a completion."""

    model: str
    is_chat: bool
    created_s: int = field(default_factory=lambda: int(time.time()))
    name: str = field(default_factory=lambda: uuid4().hex)

    def whole(self, text: str, end: End) -> dict[str, Any]:
        """Return the answer in one object."""
        message = {"role": "assistant", "content": text}
        choice = {"message": message} if self.is_chat else {"text": text}
        return {
            **self._head("chat.completion" if self.is_chat else "text_completion"),
            "choices": [_choice(choice, end.reason)],
            "usage": _usage(end),
            "time_info": self._times(end),
            "seed": end.seed,
        }

    def opening(self) -> dict[str, Any] | None:
        """Return the chunk before the text of a streamed chat."""
        return (
            self._chunk({"delta": {"role": "assistant", "content": ""}}) if self.is_chat else None
        )

    def piece(self, text: str) -> dict[str, Any]:
        """Return a chunk of a streamed answer."""
        return self._chunk({"delta": {"content": text}} if self.is_chat else {"text": text})

    def closing(self, end: End) -> dict[str, Any]:
        """Return the chunk that says why a streamed answer ends."""
        last = self._chunk({"delta": {}} if self.is_chat else {"text": ""}, end.reason)
        return {**last, "time_info": self._times(end), "seed": end.seed}

    def usage(self, end: End) -> dict[str, Any]:
        """Return the chunk of the usage of a streamed answer."""
        return {**self._chunk(None), "usage": _usage(end)}

    def _chunk(self, choice: Mapping[str, Any] | None, reason: str | None = None) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        choices = [] if choice is None else [_choice(choice, reason)]
        return {**self._head(kind), "choices": choices}

    def _head(self, kind: str) -> dict[str, Any]:
        prefix = "chatcmpl" if self.is_chat else "cmpl"
        return {
            "id": f"{prefix}-{self.name}",
            "object": kind,
            "created": self.created_s,
            "model": self.model,
        }

    def _times(self, end: End) -> dict[str, float]:
        emulated = end.emulated
        return {
            "queue_time": 0.0,
            "prompt_time": emulated.prompt_s,
            "completion_time": emulated.completion_s,
            "total_time": emulated.prompt_s + emulated.completion_s,
            "measured": end.measured_s,
            "created": float(self.created_s),
        }


def error_body(
    message: str, status: int, *, code: str | None = None, param: str | None = None
) -> dict[str, Any]:
    """Return the object that says why a request fails."""
    kind = _TYPES.get(status, "api_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def failure(error: WaferStreamError) -> tuple[int, dict[str, Any]]:
    """Return the status and the object of an error of ours."""
    status = status_of(type(error), error.code).http
    return status, error_body(str(error), status, code=error.code)


def _choice(choice: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": 0, **choice, "logprobs": None, "finish_reason": reason}


def _usage(end: End) -> dict[str, int]:
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
    }
