"""Chat templates of Hugging Face's folders, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from waferstream.core.errors import ConfigError
from waferstream.serving.models.text import Message

MOST_TURNS = 100_000
"""The most numbers that the loops of a template may count for one chat."""


class ChatTemplate:
    """What writes chats.

    Args:
        source: The template.
        words: What it calls ``eos_token`` and the like.
    """

    def __init__(self, source: str, words: Mapping[str, str]) -> None:
        self.source = source
        self._words = words

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> str:
        """Return the text of a chat to answer.

        Args:
            messages: The chat.
            tools: What may be called, as OpenAI describes functions.
            options: Names that this template knows beside those of all templates.

        Raises:
            ConfigError: The template refuses the chat.
        """
        given: dict[str, Any] = {
            "messages": [dict(each) for each in messages],
            "tools": list(tools) or None,
            "documents": None,
            "add_generation_prompt": True,
            **self._words,
            **options,
        }
        try:
            return _environment().from_string(self.source).render(given)
        except Exception as error:  # a template is a stranger's code
            raise ConfigError(
                "the template of the model refuses the chat",
                code="chat-not-rendered",
                value=error,
                remedy="send other roles or another order, or ask /v1/completions",
            ) from error


class _Sandbox(ImmutableSandboxedEnvironment):
    """A sandbox whose templates end, and whose texts stay small."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        self._num_turns = 0
        self.globals["range"] = self._range

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Multiply numbers alone."""
        if operator == "**" or not all(isinstance(each, int | float) for each in (left, right)):
            raise SecurityError(f"{operator} is not for {type(left).__name__} here")
        return super().call_binop(context, operator, left, right)

    def _range(self, *bounds: int) -> Iterator[int]:
        for number in range(*bounds):
            self._num_turns += 1
            if self._num_turns > MOST_TURNS:
                raise SecurityError(f"loops have at most {MOST_TURNS} turns in all")
            yield number


def _environment() -> _Sandbox:
    """Return what renders one chat, with the names that transformers gives templates."""
    environment = _Sandbox()
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = _to_json
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
