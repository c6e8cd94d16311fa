"""Requests for responses, as OpenAI's clients send them: each a chat with other words."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from waferstream.serving.accounts.account import AskedTier
from waferstream.serving.http.bodies import checked
from waferstream.serving.http.chats import ChatRequest
from waferstream.serving.http.requests import Count, StreamOptions
from waferstream.serving.models.text import Text
from waferstream.serving.questions import Question

_CONFIG = ConfigDict(extra="forbid", frozen=True)


class ItemText(BaseModel):
    """A part of a message."""

    model_config = ConfigDict(frozen=True)  # annotations and logprobs of our own answers, too

    type: Literal["input_text", "output_text"]
    text: str


class MessageItem(BaseModel):
    """A message, asked or answered."""

    model_config = _CONFIG

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ItemText]
    id: str | None = None
    status: str | None = None

    def message(self) -> dict[str, Any]:
        """Return it as a message of a chat."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return {"role": self.role, "content": text}


class CallItem(BaseModel):
    """A call that the model has made."""

    model_config = _CONFIG

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None

    def message(self) -> dict[str, Any]:
        """Return it as a message of a chat."""
        function = {"name": self.name, "arguments": self.arguments}
        call = {"id": self.call_id, "type": "function", "function": function}
        return {"role": "assistant", "tool_calls": [call]}


class CallOutputItem(BaseModel):
    """What a call has returned."""

    model_config = _CONFIG

    type: Literal["function_call_output"]
    call_id: str
    output: str
    id: str | None = None
    status: str | None = None

    def message(self) -> dict[str, Any]:
        """Return it as a message of a chat."""
        return {"role": "tool", "tool_call_id": self.call_id, "content": self.output}


def _kind_of(item: Any) -> Any:
    """Return the type of an item; that of a message may be left out."""
    return item.get("type", "message") if isinstance(item, dict) else None


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[CallOutputItem, Tag("function_call_output")],
    Discriminator(_kind_of),
]


class TextConfig(BaseModel):
    """What the text must be."""

    model_config = _CONFIG

    format: dict[str, Any] | None = None

    def response_format(self) -> dict[str, Any] | None:
        """Return it as a chat has it, where a schema lies one level deeper."""
        if self.format is None or self.format.get("type") != "json_schema":
            return self.format
        schema = {name: value for name, value in self.format.items() if name != "type"}
        return {"type": "json_schema", "json_schema": schema}


class Reasoning(BaseModel):
    """How much the model thinks."""

    model_config = _CONFIG

    effort: Literal["none", "low", "medium", "high"] | None = None


class ResponseRequest(BaseModel):
    """The body of ``POST /v1/responses``."""

    model_config = _CONFIG

    model: str
    input: str | Annotated[list[Item], Field(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stream: bool | None = None
    text: TextConfig | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["disabled"] | None = None
    metadata: Annotated[dict[str, str], Field(max_length=16)] | None = None
    service_tier: AskedTier | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    deadline_s: float | None = None
    user: str | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None

    @field_validator("store", "background", "previous_response_id", "conversation")
    @classmethod
    def _needs_no_state(cls, value: Any) -> Any:
        if value:
            raise ValueError("responses are not kept here: send the whole conversation as input")
        return value

    num_choices: ClassVar[int] = 1
    stream_options: ClassVar[StreamOptions | None] = None

    def questions(self, text: Text) -> list[Question]:
        """Return what is asked; ConfigError if the model does not know such messages."""
        return self._chat().questions(text)

    def _chat(self) -> ChatRequest:
        """Return the chat that it asks for.

        Raises:
            RefusedError: No chat can be asked so.
        """
        items = self.input
        messages = (
            [{"role": "user", "content": items}]
            if isinstance(items, str)
            else [item.message() for item in items]
        )
        if self.instructions is not None:
            messages.insert(0, {"role": "system", "content": self.instructions})
        asked = {
            "messages": messages,
            "max_completion_tokens": self.max_output_tokens,
            "response_format": None if self.text is None else self.text.response_format(),
            "tools": None if self.tools is None else [_nested(tool) for tool in self.tools],
            "tool_choice": _nested(self.tool_choice),
            "reasoning_effort": None if self.reasoning is None else self.reasoning.effort,
        }
        same = (
            "model", "temperature", "top_p", "seed", "stream", "parallel_tool_calls",
            "service_tier", "user", "prompt_cache_key", "prompt_cache_retention", "deadline_s",
        )  # fmt: skip
        return checked(asked | {name: getattr(self, name) for name in same}, ChatRequest)


def _nested(tool: Any) -> Any:
    """Return a function as a chat has it, one level deeper."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    function = {name: value for name, value in tool.items() if name != "type"}
    return {"type": "function", "function": function}
