"""Messages of chats, as OpenAI's clients send them."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from waferstream.serving.models.text import Text

_CONFIG = ConfigDict(extra="forbid", frozen=True)


class TextPart(BaseModel):
    """A part of the content of a message."""

    model_config = _CONFIG

    type: Literal["text"]
    text: str


Content = str | list[TextPart]


class CalledFunction(BaseModel):
    """A function with arguments, which are JSON."""

    model_config = _CONFIG

    name: str
    arguments: str


class ToolCall(BaseModel):
    """A call that a model has made."""

    model_config = _CONFIG

    id: str
    type: Literal["function"]
    function: CalledFunction

    @model_validator(mode="after")
    def _has_arguments(self) -> Self:
        try:
            is_object = isinstance(json.loads(self.function.arguments or "{}"), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            raise ValueError("the arguments of a call must be an object in JSON")
        return self

    def described(self) -> dict[str, Any]:
        """Return what a chat template reads of it: arguments as an object."""
        arguments = json.loads(self.function.arguments or "{}")
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": self.type, "function": function}


class AskedMessage(BaseModel):
    """What a user or the program says."""

    model_config = _CONFIG

    role: Literal["system", "developer", "user"]
    content: Content
    name: str | None = None

    def described(self) -> dict[str, Any]:
        """Return what a chat template reads of it."""
        return _without_none(role=self.role, content=_text(self.content), name=self.name)


class AssistantMessage(BaseModel):
    """What a model has said, thought and called."""

    model_config = _CONFIG

    role: Literal["assistant"]
    content: Content | None = None
    name: str | None = None
    refusal: None = None
    reasoning: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and not self.tool_calls:
            raise ValueError("a message of the assistant must have content or tool_calls")
        return self

    def described(self) -> dict[str, Any]:
        """Return what a chat template reads of it."""
        calls = [call.described() for call in self.tool_calls or []]
        return _without_none(
            role=self.role,
            content=_text(self.content or ""),
            name=self.name,
            reasoning_content=self.reasoning,
            tool_calls=calls or None,
        )


class ToolMessage(BaseModel):
    """What a call has returned."""

    model_config = _CONFIG

    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: str | None = None

    def described(self) -> dict[str, Any]:
        """Return what a chat template reads of it."""
        return _without_none(
            role=self.role,
            content=_text(self.content),
            tool_call_id=self.tool_call_id,
            name=self.name,
        )


class PredictedOutput(BaseModel):
    """Text that an answer may have, which makes it faster."""

    model_config = _CONFIG

    type: Literal["content"]
    content: Content

    def tokens(self, text: Text) -> tuple[int, ...]:
        """Return its tokens, without the one that begins texts."""
        return text.encode(_text(self.content))[len(text.encode("")) :]


Message = Annotated[AskedMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


def _text(content: Content) -> str:
    return content if isinstance(content, str) else "".join(part.text for part in content)


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
