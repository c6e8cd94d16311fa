"""What a model thinks before it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from waferstream.core.errors import ConfigError

BEGIN, END = "<think>", "</think>"
"""The words around thoughts."""

Thinking = Literal["never", "perhaps", "begun"]
"""Whether an answer has thoughts: it may begin with them, or its prompt has begun them."""

ThoughtFormat = Literal["parsed", "raw", "hidden"]
"""Where thoughts are told: beside the answer, in it with the words around them, or not at all."""


def thinking_after(prompt: str, template: str) -> Thinking:
    """Return whether an answer has thoughts, by the prompt that a template has written."""
    written = prompt.rstrip()
    if written.endswith(BEGIN):
        return "begun"
    return "perhaps" if BEGIN in template and not written.endswith(END) else "never"


def options_of(effort: str | None, template: str) -> Mapping[str, Any]:
    """Return what tells a template how much to think; any effort but ``none`` thinks.

    Raises:
        ConfigError: The template does not know that.
    """
    if effort is None:
        return {}
    known: dict[str, Any] = {"enable_thinking": effort != "none"}
    if effort != "none":
        known["reasoning_effort"] = effort
    found = {name: value for name, value in known.items() if name in template}
    if not found:
        raise _does_not_think("reasoning_effort", effort)
    return found


def check_thinks(template: str, where: str) -> None:
    """Raise ConfigError unless a model writes thoughts, by its chat template."""
    if END not in template:
        raise _does_not_think(where, "a template without thoughts")


def _does_not_think(where: str, value: str) -> ConfigError:
    return ConfigError(
        "a model must think, and its chat template say how",
        code="model-does-not-think",
        where=where,
        value=value,
        rule=f"a template with {BEGIN} and enable_thinking, as that of Qwen 3",
        remedy=f"leave {where} out",
    )
