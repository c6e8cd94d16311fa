"""Responses, by OpenAI's own client."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

ASKED: dict[str, Any] = {
    "model": "model_dir",
    "input": "def ",
    "max_output_tokens": 12,
    "extra_body": {"seed": 3},
}


@pytest.fixture
def api(client: TestClient) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{client.base_url}/v1",
        api_key="none",
        http_client=client,
        max_retries=0,
        _strict_response_validation=True,
    )


def test_response_has_the_text_of_the_chat(api: openai.OpenAI) -> None:
    found = api.responses.create(**ASKED, instructions="x = 1", metadata={"a": "b"})
    chat = api.chat.completions.create(
        model="model_dir",
        messages=[{"role": "system", "content": "x = 1"}, {"role": "user", "content": "def "}],
        max_completion_tokens=12,
        seed=3,
    )
    assert found.output_text == chat.choices[0].message.content
    assert found.status == "incomplete"
    assert found.incomplete_details is not None
    assert found.incomplete_details.reason == "max_output_tokens"
    assert found.usage is not None
    assert found.usage.output_tokens == 12
    assert (found.metadata, found.store, found.instructions) == ({"a": "b"}, False, "x = 1")


def test_responses_share_beginnings(api: openai.OpenAI) -> None:
    asked = ASKED | {"input": "y" * 140, "max_output_tokens": 2, "prompt_cache_key": "of responses"}
    cached = []
    for _ in range(2):
        usage = api.responses.create(**asked).usage
        assert usage is not None
        cached.append(usage.input_tokens_details.cached_tokens)
    assert cached == [0, 128]
    with pytest.raises(openai.BadRequestError):
        api.responses.create(**asked, prompt_cache_retention="24h")


def test_streamed_response_is_the_whole_one(api: openai.OpenAI) -> None:
    whole = api.responses.create(**ASKED)
    events = list(api.responses.create(**ASKED, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert events[-1].response.usage == whole.usage


def test_stream_is_gathered_by_the_client(api: openai.OpenAI) -> None:
    with api.responses.stream(**ASKED) as stream:
        events = list(stream)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == api.responses.create(**ASKED).output_text


def test_conversation_goes_on_with_the_items_of_an_answer(api: openai.OpenAI) -> None:
    first = api.responses.create(**ASKED)
    items = [{"role": "user", "content": "def "}, *(item.to_dict() for item in first.output)]
    items.append({"role": "user", "content": [{"type": "input_text", "text": "more"}]})
    second = api.responses.create(**ASKED | {"input": items})
    texts = ["def ", first.output_text, "more"]
    assert second.usage is not None
    assert second.usage.input_tokens == len("\n".join(texts).encode())


def test_text_follows_a_schema(api: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    found = api.responses.create(**ASKED | {"max_output_tokens": 40}, text={"format": form})
    assert json.loads(found.output_text)["a"] in (1, 2)
    assert found.status == "completed"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["reasoning.encrypted_content"]}, "include"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input.0.message.content.0",
        ),
        ({"text": {"format": {"type": "xml"}}}, "response_format"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
    ],
)
def test_what_is_not_computed_is_refused(
    api: openai.OpenAI, changes: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        api.responses.create(**ASKED | changes)
    assert (caught.value.param or "").startswith(param)


def test_responses_are_not_kept(api: openai.OpenAI) -> None:
    assert api.responses.create(**ASKED, store=False).output_text
    with pytest.raises(openai.NotFoundError):
        api.responses.retrieve("resp_1")
