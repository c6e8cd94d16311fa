"""Thoughts, text and calls in answers, however these are cut into pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waferstream.serving.formats.calls import HERMES, LLAMA, MISTRAL, Call, CallStyle
from waferstream.serving.formats.reading import ChatReader, Said
from waferstream.serving.formats.thoughts import Thinking, ThoughtFormat

CALL = '{"name": "f", "arguments": {"a": "é </tool_call"}}'
F = Call("f", '{"a": "é </tool_call"}')
G = Call("g", "{}")


def read(
    pieces: Sequence[str],
    style: CallStyle | None = HERMES,
    thinking: Thinking = "perhaps",
    told: ThoughtFormat = "parsed",
    *,
    is_one_call: bool = False,
) -> Said:
    reader = ChatReader(thinking, told, style, {"f", "g"}, is_one_call=is_one_call)
    return sum(map(reader.feed, pieces), Said()) + reader.end()


CASES: list[tuple[str, CallStyle | None, Said]] = [
    ("", HERMES, Said()),
    ("a b\n", HERMES, Said("a b\n")),
    ("a < b <tool b", HERMES, Said("a < b <tool b")),
    (f"<tool_call>\n{CALL}\n</tool_call>", HERMES, Said(calls=(F,))),
    (f"a\n<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>\n", HERMES, Said("a", calls=(F, F))),
    (f"<tool_call>{CALL}", HERMES, Said(calls=(F,))),
    ('<tool_call>{"name": "f", "argu', HERMES, Said('<tool_call>{"name": "f", "argu')),
    ('<tool_call>{"name": "h", "arguments": {}}</tool_call>', HERMES, Said('<tool_call>{"name": "h", "arguments": {}}</tool_call>')),
    ('<tool_call>{"name": "f", "arguments": 3}</tool_call>', HERMES, Said('<tool_call>{"name": "f", "arguments": 3}</tool_call>')),
    ('<tool_call>{"name": "g", "arguments": {"a": NaN}}</tool_call>', HERMES, Said('<tool_call>{"name": "g", "arguments": {"a": NaN}}</tool_call>')),
    ("<think>\nhm\n</think>\n\nyes", HERMES, Said("yes", "\nhm\n")),
    (f"<think>hm</think>\n<tool_call>{CALL}</tool_call>", HERMES, Said("", "hm", (F,))),
    ("<think>hm", HERMES, Said("", "hm")),
    ("a <think>hm</think>", HERMES, Said("a <think>hm</think>")),
    ('[TOOL_CALLS][{"name": "g", "arguments": {}}, ' + CALL + "]", MISTRAL, Said(calls=(G, F))),
    ("yes [TOOL", MISTRAL, Said("yes [TOOL")),
    ('{"name": "g", "parameters": {}}', LLAMA, Said(calls=(G,))),
    ('<|python_tag|>{"name": "g", "parameters": {}}; {"name": "g", "parameters": {}}', LLAMA, Said(calls=(G, G))),
    ('{"name": "Bob"}', LLAMA, Said('{"name": "Bob"}')),
    ("a {", LLAMA, Said("a {")),
    ("<think>hm</think>yes", None, Said("yes", "hm")),
]  # fmt: skip


def without_places(said: Said) -> Said:
    return Said(said.text, said.thought, tuple(Call(c.name, c.arguments) for c in said.calls))


@pytest.mark.parametrize("case", range(len(CASES)))
@given(cuts=st.lists(st.integers(0, 120)))
def test_answer_is_read_in_any_pieces(case: int, cuts: list[int]) -> None:
    text, style, expected = CASES[case]
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert read(pieces, style) == expected
    assert read(list(text), style) == expected


@given(st.text("<>/{}[]_ \n" + "athinkoolcu", max_size=60))
def test_text_is_told_as_it_is(text: str) -> None:
    """Whatever it looks like, if it has no calls and no thoughts."""
    said = read(list(text), style=HERMES, thinking="never", told="raw")
    assert said.text.strip() == text.strip()


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("parsed", Said(" yes", "hm")),
        ("raw", Said("<think>hm</think> yes")),
        ("hidden", Said(" yes")),
    ],
)
def test_thoughts_are_told_where_they_are_asked_for(told: ThoughtFormat, expected: Said) -> None:
    text = "<think>hm</think> yes"
    said = read(list(text), None, told=told)
    assert said.thought == expected.thought
    assert said.text.strip() == expected.text.strip()
    begun = read(list(text.removeprefix("<think>")), None, "begun", told)
    assert begun.thought == expected.thought


def test_one_call_is_the_whole_answer() -> None:
    text = f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>"
    assert read([text], is_one_call=True) == Said(calls=(F,))
    reader = ChatReader("never", "raw", HERMES, {"f"}, is_one_call=True)
    for letter in text:
        reader.feed(letter)
        if reader.is_over:
            break
    assert reader.is_over


def test_deep_json_is_no_call() -> None:
    text = "<tool_call>" + "[" * 100_000 + "</tool_call>"
    assert read([text]).text == text


def test_arguments_stay_text() -> None:
    assert json.loads(F.arguments) == {"a": "é </tool_call"}
