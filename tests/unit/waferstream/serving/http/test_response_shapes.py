"""Responses with calls of tools, as the types of OpenAI's client have them."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from waferstream.machine.regions.token_time import TokenTime
from waferstream.serving.clock import EmulatedTime
from waferstream.serving.formats.calls import Call
from waferstream.serving.formats.reading import Said
from waferstream.serving.http.response_requests import ResponseRequest
from waferstream.serving.http.response_shapes import ResponseShape
from waferstream.serving.http.shapes import Choice, Shape
from waferstream.serving.questions import End, Piece

EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
NO_TIME = EmulatedTime(TokenTime(), TokenTime())
END = End("tool_calls", 5, 9, NO_TIME, 0.1, 1, 0, 0, 0, 0)
CALLS = (Call("add", '{"a": 1}', 0, "call_1"), Call("sub", "{}", 1, "call_2"))
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "parameters": {}, "strict": None} for name in ("add", "sub")
]


def shape() -> ResponseShape:
    asked = ResponseRequest.model_validate({"model": "m", "input": "x", "tools": TOOLS})
    return ResponseShape(asked, Shape("m", is_chat=True))


@pytest.mark.parametrize("text", ["", "Adding."])
def test_calls_are_items_beside_what_is_said(text: str) -> None:
    whole = shape().whole([Choice(Said(text, calls=CALLS), (), END)])
    found = Response.model_validate(whole)
    assert found.status == "completed"
    kinds = [item.type for item in found.output]
    assert kinds == ["message"] * bool(text) + ["function_call"] * 2


@pytest.mark.parametrize("text", ["", "Adding."])
def test_calls_are_streamed_item_by_item(text: str) -> None:
    told = shape()
    events: list[dict[str, Any]] = [*told.opening(), *told.piece(Piece(Said(text)))]
    events += told.closing(Choice(Said(text, calls=CALLS), (), END))
    found = [EVENT.validate_python(event) for event in events]
    added = [event.output_index for event in found if event.type == "response.output_item.added"]
    assert added == list(range(len(CALLS) + bool(text)))
    done = [e for e in found if e.type == "response.function_call_arguments.done"]
    assert [event.arguments for event in done] == ['{"a": 1}', "{}"]
    assert found[-1].type == "response.completed"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_failure_is_the_last_event() -> None:
    event = shape().failed({"message": "no more"})
    assert EVENT.validate_python(event).type == "response.failed"
