"""The vendor's own client against the service: every answer passes its strict checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cerebras.cloud import sdk

from tests.support.runs.served_folder import WAIT_S, serving, train_decoder

CHAT: dict[str, Any] = {
    "model": "model_dir",
    "messages": [{"role": "system", "content": "x = 1"}, {"role": "user", "content": "def "}],
    "max_completion_tokens": 12,
    "seed": 3,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(train_decoder(tmp_path_factory.mktemp("vendor"))) as place:
        yield place.removesuffix("/v1")


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    made = sdk.Cerebras(
        base_url=url,
        api_key="none",
        timeout=WAIT_S,
        max_retries=0,
        _strict_response_validation=True,
    )
    with made:
        yield made


def test_connection_is_opened_in_advance(client: Any) -> None:
    assert client.get("/v1/tcp_warming", cast_to=str) == ""


def test_chat_tells_usage_and_times(client: Any) -> None:
    found = client.chat.completions.create(**CHAT)
    assert found.choices[0].finish_reason == "length"
    assert found.usage.total_tokens == found.usage.prompt_tokens + 12
    times = found.time_info
    assert times.total_time == times.queue_time + times.prompt_time + times.completion_time > 0


def test_streamed_chat_is_the_whole_one(client: Any) -> None:
    whole = client.chat.completions.create(**CHAT)
    chunks = list(
        client.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert chunks[-2].time_info.total_time == whole.time_info.total_time


def test_text_is_continued(client: Any) -> None:
    asked: dict[str, Any] = {"model": "model_dir", "prompt": "def ", "max_tokens": 8, "seed": 1}
    whole = client.completions.create(**asked)
    chunks = list(client.completions.create(**asked, stream=True))
    assert "".join(each.choices[0].text or "" for each in chunks) == whole.choices[0].text


def test_models_are_described(client: Any) -> None:
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id).id == "model_dir"
    with pytest.raises(sdk.BadRequestError):
        client.models.list(format="openrouter")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": "llama"}, sdk.NotFoundError),
        ({"temperature": -1}, sdk.BadRequestError),
        ({"clear_thinking": True}, sdk.BadRequestError),
    ],
)
def test_refusals_are_the_errors_of_the_client(
    client: Any, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.chat.completions.create(**CHAT | changes)


@pytest.mark.parametrize(
    ("given", "is_kept"), [("trace-7:a.b", True), ("", False), ("x" * 129, False), ("a b", False)]
)
def test_request_keeps_a_sane_name(client: Any, given: str, is_kept: bool) -> None:
    raw = client.models.with_raw_response.list(extra_headers={"x-request-id": given})
    assert (raw.headers["x-request-id"] == given) == is_kept


def test_failures_have_a_name(client: Any) -> None:
    for path in ("/v1/nowhere", "/v1/chat/completions"):
        with pytest.raises(sdk.APIStatusError) as caught:
            client.get(path, cast_to=str)
        assert caught.value.response.headers["x-request-id"].startswith("req_")
