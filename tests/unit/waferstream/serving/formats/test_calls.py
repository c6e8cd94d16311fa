"""Calls of tools: what a grammar forces is what a reader finds, for every style."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from waferstream.serving.formats.calls import HERMES, LLAMA, MISTRAL, CallStyle, Tool, style_of
from waferstream.serving.formats.chat_format import ChatFormat
from waferstream.serving.formats.reading import Said
from waferstream.serving.models.grammars import Grammars
from waferstream.serving.models.text import ByteText

DAYS = {
    "type": "object",
    "properties": {"days": {"$ref": "#/$defs/few"}},
    "required": ["days"],
    "additionalProperties": False,
    "$defs": {"few": {"enum": [1, 2, "é"]}},
}
TOOLS = (
    Tool("weather", DAYS, is_strict=True),
    Tool("now", {"type": "object", "additionalProperties": False}, is_strict=True),
)
GRAMMARS = Grammars(ByteText(), 256)


def said(chat: ChatFormat, begin: str, seed: int) -> Said:
    """What is read in an answer that begins so and goes on by chance, as far as it must."""
    guide = GRAMMARS.guide(chat.grammar(ByteText().token_of) or "")
    rng, text = np.random.default_rng(seed), bytearray()
    forced = list(begin.encode())
    while not guide.is_complete:
        token = forced.pop(0) if forced else int(rng.choice(np.flatnonzero(guide.allowed())))
        guide.take(token)
        text.append(token)
    reader = chat.reader()
    return reader.feed(text.decode()) + reader.end()


@pytest.mark.parametrize("style", [HERMES, MISTRAL, LLAMA])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_one_call", [True, False])
def test_forced_calls_are_read(style: CallStyle, seed: int, is_one_call: bool) -> None:
    chat = ChatFormat(tools=TOOLS, style=style, must_call=True, is_one_call=is_one_call)
    found = said(chat, "", seed)
    assert not found.text
    assert found.calls
    for call in found.calls:
        tool = next(tool for tool in TOOLS if tool.name == call.name)
        jsonschema.validate(json.loads(call.arguments), tool.parameters)


@pytest.mark.parametrize("style", [HERMES, MISTRAL, LLAMA])
def test_strict_tools_leave_text_free(style: CallStyle) -> None:
    """Until a call begins, which then fits."""
    chat = ChatFormat(tools=TOOLS, style=style, is_one_call=True)
    guide = GRAMMARS.guide(chat.grammar(ByteText().token_of) or "")
    for byte in b"yes ":
        guide.take(byte)
    guide = GRAMMARS.guide(chat.grammar(ByteText().token_of) or "")
    for byte in (style.begin + style.opens + '{"name": "').encode():
        guide.take(byte)
    assert set(np.flatnonzero(guide.allowed())) == set(b"wn")


def test_thoughts_come_before_what_is_forced() -> None:
    chat = ChatFormat(tools=TOOLS, style=HERMES, must_call=True, is_one_call=True)
    thinking = replace(chat, thinking="perhaps", thoughts="parsed")
    found = said(thinking, "<think>hm</think>\n\n", 1)
    assert found.thought == "hm"
    assert len(found.calls) == 1


@pytest.mark.parametrize(
    ("template", "style"),
    [
        ("{{ tools }}<tool_call>", HERMES),
        ("{{ tools }}[TOOL_CALLS]", MISTRAL),
        ('{{ tools }}{"name": f, "parameters": p}', LLAMA),
        ("{{ tools }}<tool_call><function=", None),
        ("{{ messages }}", None),
        ("", None),
    ],
)
def test_style_is_that_of_the_template(template: str, style: CallStyle | None) -> None:
    assert style_of(template) == style
