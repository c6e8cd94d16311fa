"""Calls of tools, as families of models write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from waferstream.serving.formats.grammars import (
    ANY_TEXT,
    TokenOf,
    either,
    text_term,
    until_rule,
    word_term,
)
from waferstream.serving.formats.schemas import ON_A_LINE, json_term


@dataclass(frozen=True)
class Tool:
    """A function that a model may call."""

    name: str
    parameters: Mapping[str, Any]
    """The schema of its arguments, which are an object."""
    is_strict: bool = False
    """Whether calls fit the schema even where none is asked for."""


@dataclass(frozen=True)
class Call:
    """A call that a model has written."""

    name: str
    arguments: str
    """JSON."""
    number: int = 0
    """Its place among those of an answer."""
    id: str = ""
    """What the message with its result names it."""


@dataclass(frozen=True)
class CallStyle:
    """How a family writes calls: runs of one or several, in the midst of text.

    Attributes:
        begin: The word before a run; none where calls are the whole answer.
        opens: What follows that word.
        arguments: The key of the arguments.
        between: What is between two calls, or two runs of one.
        closes: What ends the calls of a run.
        end: The word after a run.
        has_several: Whether a run has several calls.
    """

    begin: str
    opens: str
    arguments: str
    between: str
    closes: str
    end: str
    has_several: bool

    def begins(self, text: str) -> int:
        """Return where a run begins in a text, -1 if nowhere."""
        if self.begin:
            return text.find(self.begin)
        lead = len(text) - len(text.lstrip())
        return lead if text[lead:].startswith(("{", PYTHON_TAG)) else -1

    def calls_in(self, run: str, names: Iterable[str]) -> list[Call]:
        """Return the calls of a run, without the words around it; none if it has anything else."""
        found = []
        for value in _values(run.strip().removeprefix(PYTHON_TAG)):
            match value:
                case {"name": str(name), self.arguments: dict(arguments)} if name in names:
                    found.append(Call(name, json.dumps(arguments, ensure_ascii=False)))
                case _:
                    return []
        return found


PYTHON_TAG = "<|python_tag|>"
"""What LLaMA may write before a call."""

HERMES = CallStyle(
    "<tool_call>", "\n", "arguments", "\n", "\n", "</tool_call>", has_several=False
)  # also Qwen 2.5 and 3
MISTRAL = CallStyle("[TOOL_CALLS]", "[", "arguments", ", ", "]", "", has_several=True)
LLAMA = CallStyle("", "", "parameters", "; ", "", "", has_several=True)


def style_of(template: str) -> CallStyle | None:
    """Return how a model writes calls by its chat template, None if it knows none of ours."""
    if "tools" not in template or "<function=" in template:
        return None
    if HERMES.begin in template:
        return HERMES
    if MISTRAL.begin in template:
        return MISTRAL
    return LLAMA if '"parameters"' in template else None


def calls_rules(
    style: CallStyle, tools: Sequence[Tool], token_of: TokenOf, *, is_one: bool
) -> list[str]:
    """Return the rules of ``calls``, one or more, and of ``free``: text with calls, or without.

    Raises:
        ConfigError: The schema of a tool is too large.
    """
    call = either([_call_term(style, tool) for tool in tools])
    more = f"({text_term(style.between)} call)*" if style.has_several and not is_one else ""
    end = word_term(style.end, token_of) if style.end else ""
    rest = f"{text_term(style.opens)} call {more} {text_term(style.closes)} {end}"
    rules = [f"call: {call}", f"rest: {rest}", ANY_TEXT]
    if not style.begin:
        return [*rules, "calls: rest", "PLAIN: /[^{](.|\\n)*/", 'free: calls | PLAIN | ""']
    runs = "run" if is_one or style.has_several else f"run ({text_term(style.between)} run)*"
    return [
        *rules,
        f"run: {word_term(style.begin, token_of)} rest",
        f"calls: {runs}",
        until_rule("before", style.begin, token_of),
        f"free: (before rest){'?' if is_one else '*'} TEXT",
    ]


def _call_term(style: CallStyle, tool: Tool) -> str:
    """Return the term of a call of a tool; the schema stays the root of its references."""
    begin = f'{{"name": {json.dumps(tool.name)}, "{style.arguments}": '
    return f"{text_term(begin)} {json_term(tool.parameters, ON_A_LINE)} {text_term('}')}"


def _values(text: str) -> list[Any]:
    """Return the values of a text of JSON, those of lists one by one; none if it is none."""
    found: list[Any] = []
    try:
        while text:
            value, length = _DECODER.raw_decode(text)
            found += value if isinstance(value, list) else [value]
            text = text[length:].lstrip(" \n\t;,")
    except (ValueError, RecursionError):
        return []
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(parse_constant=_refuse)
