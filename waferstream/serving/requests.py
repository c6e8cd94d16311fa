"""Requests of the API, as OpenAI's clients send them; what we do not compute is refused."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from waferstream.core.serving import Sampling
from waferstream.serving.text import Text

Count = Annotated[int, Field(ge=1)]


class _Asked(BaseModel):
    """What every request may ask for; a key that is not here is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Count | None = None
    seed: int | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
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
    name: str | None = None

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
    place = ".".join(str(part) for part in error["loc"] if not str(part).startswith("function-"))
    if error["type"] == "extra_forbidden":
        return f"parameter {place} is not supported", place
    return f"{place or 'the body'}: {error['msg']}", place or None
