"""Chats with tools and thoughts, by a tiny random model with the template of Qwen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema
import openai
import pytest
from pydantic import BaseModel
from starlette.testclient import TestClient

from tests.support.models.hugging_face_folder import write_folder
from tests.support.runs.served_folder import LOCAL
from waferstream.serving.answers import Answers
from waferstream.serving.deployment import Deployment
from waferstream.serving.http.app import make_app

TEMPLATE = """
{%- if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}<e>{% endif %}
{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}
{%- for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<e>
{%- endfor %}<|assistant|>
{%- if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}"""
WEATHER = {
    "type": "object",
    "properties": {"days": {"type": "integer", "maximum": 9}, "unit": {"$ref": "#/$defs/unit"}},
    "required": ["days", "unit"],
    "additionalProperties": False,
    "$defs": {"unit": {"enum": ["C", "F"]}},
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("thinker")
    words = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
    write_folder(folder, "qwen3", template=TEMPLATE, words=words, context=1200)
    with (
        Answers(Deployment(folder)) as answers,
        TestClient(
            make_app(answers, folder), base_url=LOCAL, raise_server_exceptions=False
        ) as client,
    ):
        client.headers["model"] = answers.model.name
        yield client


def post(client: TestClient, **changes: Any) -> Any:
    asked = {
        "model": client.headers["model"], "messages": [{"role": "user", "content": "for"}],
        "max_completion_tokens": 300, "seed": 3, "temperature": 0.3,
    }  # fmt: skip
    return client.post("/v1/chat/completions", json=asked | changes)


def chosen(client: TestClient, **changes: Any) -> Any:
    answer = post(client, **changes)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def token(client: TestClient, word: str) -> str:
    return str(client.post("/tokenize", json={"prompt": word}).json()["tokens"][0])


@pytest.mark.parametrize("seed", range(4))
def test_call_that_is_required_fits_its_schema(thinker: TestClient, seed: int) -> None:
    choice = chosen(
        thinker, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed,
        reasoning_effort="none",
    )  # fmt: skip
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    jsonschema.validate(
        arguments, WEATHER if call["function"]["name"] == "weather" else {"const": {}}
    )
    assert len(call["id"]) == 9


def test_named_tool_is_called(thinker: TestClient) -> None:
    choice = chosen(
        thinker, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "now"}},
        reasoning_effort="none",
    )  # fmt: skip
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "now", "arguments": "{}"}


def test_streamed_calls_are_those_of_the_whole_answer(thinker: TestClient) -> None:
    asked: dict[str, Any] = {
        "tools": TOOLS, "tool_choice": "required", "reasoning_effort": "none",
        "logit_bias": {token(thinker, "<e>"): 3},
    }  # fmt: skip
    whole = chosen(thinker, **asked)
    calls: list[Any] = []
    reasons = []
    for line in post(thinker, **asked, stream=True).text.split("\n\n"):
        if line.startswith("data: {"):
            (choice,) = json.loads(line.removeprefix("data: "))["choices"]
            calls += choice["delta"].get("tool_calls", [])
            reasons.append(choice["finish_reason"])
    assert [call.pop("index") for call in calls] == list(range(len(calls)))
    assert calls == whole["message"].get("tool_calls", [])
    assert reasons[-1] == whole["finish_reason"]


def test_call_of_a_strict_tool_fits_where_none_is_asked_for(thinker: TestClient) -> None:
    """As soon as the model begins one."""
    function = {"name": "weather", "parameters": WEATHER, "strict": True}
    choice = chosen(
        thinker, tools=[{"type": "function", "function": function}],
        reasoning_effort="none", parallel_tool_calls=False,
        logit_bias={token(thinker, "<tool_call>"): 100},
    )  # fmt: skip
    (call,) = choice["message"]["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), WEATHER)


def test_chat_goes_on_after_a_call(thinker: TestClient) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "for"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "a", "content": "12"},
    ]
    assert chosen(thinker, messages=messages, tools=TOOLS, max_completion_tokens=4)
    messages[1]["tool_calls"] = [call | {"function": {"name": "now", "arguments": "{"}}]
    assert post(thinker, messages=messages, tools=TOOLS).status_code == 400


def test_thoughts_are_told_apart(thinker: TestClient) -> None:
    """The model is led to begin and end one."""
    begin, end = token(thinker, "<think>"), token(thinker, "</think>")
    asked: dict[str, Any] = {
        "logit_bias": {begin: 30, end: 25}, "frequency_penalty": 2, "max_completion_tokens": 60,
        "logprobs": True, "temperature": 1,
    }  # fmt: skip
    raw = chosen(thinker, **asked)["message"]["content"]
    assert raw.startswith("<think>")
    answer = post(thinker, **asked, reasoning_format="parsed").json()
    choice = answer["choices"][0]
    thought = choice["message"].get("reasoning", "")
    assert raw.startswith(f"<think>{thought}")
    num_thought = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert len(choice["reasoning_logprobs"]["content"]) == num_thought > 0
    hidden = chosen(thinker, **asked, reasoning_format="hidden")["message"]
    assert hidden["content"] == choice["message"]["content"]
    assert raw.endswith(hidden["content"])
    assert "reasoning" not in hidden


def test_answer_in_a_format_hides_its_thoughts(thinker: TestClient) -> None:
    asked: dict[str, Any] = {
        "logit_bias": {token(thinker, "<think>"): 30, token(thinker, "</think>"): 9},
        "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [1, 2]}},
        },
    }  # fmt: skip
    for effort in ("none", "high"):
        answer = post(thinker, **asked, reasoning_effort=effort).json()
        assert json.loads(answer["choices"][0]["message"]["content"]) in (1, 2)
        thought = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert (thought > 0) == (effort == "high")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tools": TOOLS * 2}, "invalid_request"),
        ({"tool_choice": "required"}, "invalid_request"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "invalid_request"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "invalid_request"),
        ({"messages": [{"role": "assistant"}]}, "invalid_request"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "invalid_request"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"minProperties": 2, "maxProperties": 1}}}], "tool_choice": "required"}, "format-not-possible"),
        ({"reasoning_effort": "extreme"}, "invalid_request"),
    ],
)  # fmt: skip
def test_what_does_not_agree_is_refused(
    thinker: TestClient, changes: dict[str, Any], code: str
) -> None:
    refused = post(thinker, **changes)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tools": TOOLS}, "tools-not-known"),
        ({"messages": [{"role": "tool", "tool_call_id": "a", "content": "x"}]}, "tools-not-known"),
        ({"reasoning_effort": "low"}, "model-does-not-think"),
        ({"reasoning_format": "parsed"}, "model-does-not-think"),
    ],
)
def test_model_without_a_template_refuses_by_name(
    client: TestClient, changes: dict[str, Any], code: str
) -> None:
    asked = {"model": "model_dir", "messages": [{"role": "user", "content": "x"}]}
    refused = client.post("/v1/chat/completions", json=asked | changes)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == code
    assert refused.json()["error"]["message"]


class Weather(BaseModel):
    """What the weather is asked for."""

    days: Literal[1, 2]
    unit: Literal["C", "F"]


@pytest.fixture
def vendor(thinker: TestClient) -> openai.OpenAI:
    """OpenAI's client of the service in this process."""
    return openai.OpenAI(base_url=f"{LOCAL}/v1", api_key="none", max_retries=0, http_client=thinker)


def test_client_of_openai_parses_calls(thinker: TestClient, vendor: openai.OpenAI) -> None:
    """Whole, and streamed with its helper."""
    asked: dict[str, Any] = {
        "model": thinker.headers["model"], "messages": [{"role": "user", "content": "for"}],
        "tools": [openai.pydantic_function_tool(Weather)], "tool_choice": "required", "seed": 4,
        "parallel_tool_calls": False, "reasoning_effort": "none", "max_completion_tokens": 200,
    }  # fmt: skip
    found = vendor.chat.completions.parse(**asked)
    (call,) = found.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Weather)
    with vendor.chat.completions.stream(**asked) as stream:
        last = stream.get_final_completion()
    (streamed,) = last.choices[0].message.tool_calls or []
    assert (streamed.id, streamed.function) == (call.id, call.function)
    said = vendor.chat.completions.create(**asked).choices[0].message
    turns = [*asked["messages"], said]
    turns.append({"role": "tool", "tool_call_id": call.id, "content": "sun"})
    asked |= {"messages": turns, "tool_choice": "none", "max_completion_tokens": 3}
    again = vendor.chat.completions.create(**asked)
    assert again.choices[0].message.tool_calls is None
