"""Requests and responses of the API, as OpenAI's clients send and read them.

What we do not compute is refused; times stand beside a response as the vendor's service has them.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from waferstream.core.serving import Sampling
from waferstream.serving.models.text import Text

Count = Annotated[int, Field(ge=1)]
Stop = Annotated[str, Field(min_length=1)]


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
