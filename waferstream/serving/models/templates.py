"""Chat templates of Hugging Face's folders, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from waferstream.core.errors import ConfigError
from waferstream.serving.models.text import Message


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


def _environment() -> ImmutableSandboxedEnvironment:
    """Return what renders templates, with the names that transformers gives them."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = _to_json
    return environment


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
