"""Requests for chats, as OpenAI's clients send them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from waferstream.core.errors import ConfigError
from waferstream.serving.formats import thoughts
from waferstream.serving.formats.calls import CallStyle, style_of
from waferstream.serving.formats.chat_format import ChatFormat
from waferstream.serving.formats.schemas import LAID_OUT, json_term
from waferstream.serving.http.messages import (
    AssistantMessage,
    Message,
    PredictedOutput,
    ToolMessage,
)
from waferstream.serving.http.requests import Asked, Count
from waferstream.serving.http.tools import FunctionTool, NamedTool, ToolChoice
from waferstream.serving.models.text import Chat, Text
from waferstream.serving.questions import Question

_CONFIG = ConfigDict(extra="forbid", frozen=True)


class TextFormat(BaseModel):
    """Any text."""

    model_config = _CONFIG

    type: Literal["text"]

    def term(self) -> str | None:
        """Return the term of a grammar that an answer is, None if it is any text."""
        return None


class JsonFormat(BaseModel):
    """Any object."""

    model_config = _CONFIG

    type: Literal["json_object"]

    def term(self) -> str | None:
        """Return the term of a grammar that an answer is."""
        return json_term({"type": "object"}, LAID_OUT)


class NamedSchema(BaseModel):
    """A schema with its name, which is nothing to us."""

    model_config = _CONFIG

    name: Annotated[str, Field(min_length=1, max_length=64)]
    description: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None
    """Answers follow the schema in any case."""


class SchemaFormat(BaseModel):
    """JSON of a schema."""

    model_config = _CONFIG

    type: Literal["json_schema"]
    json_schema: NamedSchema

    def term(self) -> str | None:
        """Return the term of a grammar that an answer is."""
        return json_term(self.json_schema.schema_, LAID_OUT)


ResponseFormat = Annotated[TextFormat | JsonFormat | SchemaFormat, Field(discriminator="type")]


Tools = Annotated[list[FunctionTool], Field(max_length=128)]


class ChatRequest(Asked):
    """The body of ``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Count | None = None
    max_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    prediction: PredictedOutput | None = None
    response_format: ResponseFormat | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "low", "medium", "high"] | None = None
    reasoning_format: Literal["none", "parsed", "raw", "hidden"] | None = None

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.max_completion_tokens is not None and self.max_tokens is not None:
            raise ValueError("max_completion_tokens and max_tokens exclude each other")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs must have logprobs: true beside it")
        names = [tool.name for tool in self.tools or []]
        if len(set(names)) < len(names):
            raise ValueError("tools must have different names")
        if self.tool_choice not in (None, "none") and not names:
            raise ValueError("tool_choice must have tools beside it")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            raise ValueError("tool_choice must name one of the tools")
        return self

    def chat(self, text: Text) -> Chat:
        """Return the prompt; ConfigError if the model does not know such messages."""
        template = text.template or ""
        options = thoughts.options_of(self.reasoning_effort, template)
        described = [message.described() for message in self.messages]
        return text.encode_chat(described, [tool.described() for tool in self._offered], options)

    def questions(self, text: Text) -> list[Question]:
        """Return what is asked; ConfigError if the model does not know such messages."""
        style = self._style(text)
        chat = self.chat(text)
        answered = self._format(chat, text.template or "", style)
        predicted = self.prediction.tokens(text) if self.prediction else ()
        grammar = answered.grammar(text.token_of)
        return [
            Question(
                chat.tokens,
                sampling,
                self.max_completion_tokens or self.max_tokens,
                self._stops,
                num_best=(self.top_logprobs or 0) if self.logprobs else None,
                grammar=grammar,
                sharing=self._sharing,
                deadline_s=self.deadline_s,
                prediction=predicted,
                make_reader=answered.reader,
                ignores_ends=bool(self.ignore_eos),
            )
            for sampling in self._samplings()
        ]

    @property
    def _offered(self) -> list[FunctionTool]:
        """The tools that the model reads of."""
        return [] if self.tool_choice == "none" else self.tools or []

    def _style(self, text: Text) -> CallStyle | None:
        """Return how the model writes calls; ConfigError if it does not and reads of them."""
        style = style_of(text.template or "")
        has_calls = any(
            isinstance(message, ToolMessage)
            or (isinstance(message, AssistantMessage) and message.tool_calls)
            for message in self.messages
        )
        if style is None and (self._offered or has_calls):
            raise ConfigError(
                "a model that calls tools must have a chat template that writes them",
                code="tools-not-known",
                where="tools",
                rule="calls as those of Hermes, Qwen, LLaMA 3 or Mistral",
                remedy="serve such a model, or ask for JSON by response_format",
            )
        return style

    def _format(self, chat: Chat, template: str, style: CallStyle | None) -> ChatFormat:
        """Return what the answer may be."""
        choice = self.tool_choice
        named = choice.function.name if isinstance(choice, NamedTool) else None
        tools = [tool.tool() for tool in self._offered if named in (None, tool.name)]
        term = None if self.response_format is None else self.response_format.term()
        told = self.reasoning_format
        if told is None or told == "none":
            told = "raw" if term is None else "hidden"
        else:
            thoughts.check_thinks(template, "reasoning_format")
        return ChatFormat(
            thoughts.thinking_after(chat.written, template),
            told,
            tools,
            style,
            must_call=choice == "required" or named is not None,
            is_one_call=named is not None or self.parallel_tool_calls is False,
            term=term,
        )
