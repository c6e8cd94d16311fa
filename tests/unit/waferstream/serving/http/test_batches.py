"""Files and batches, by OpenAI's own client."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from tests.support.runs.served_folder import LOCAL
from waferstream.serving.answers import Answers
from waferstream.serving.http.app import make_app

CHAT = "/v1/chat/completions"
ENDED = ("completed", "failed", "cancelled", "expired")


def openai_client(client: TestClient) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{client.base_url}/v1", api_key="none", http_client=client, max_retries=0
    )


@pytest.fixture
def api(client: TestClient) -> openai.OpenAI:
    return openai_client(client)


def line(name: str, **changes: Any) -> dict[str, Any]:
    body = {"model": "model_dir", "messages": [{"role": "user", "content": name}], "max_tokens": 6}
    return {"custom_id": name, "method": "POST", "url": CHAT, "body": body | changes}


def upload(api: openai.OpenAI, *lines: dict[str, Any] | str) -> str:
    texts = (each if isinstance(each, str) else json.dumps(each) for each in lines)
    content = "\n".join(texts).encode()
    return api.files.create(file=("asked.jsonl", content), purpose="batch").id


def begin(api: openai.OpenAI, file: str) -> str:
    return api.batches.create(
        input_file_id=file, endpoint="/v1/chat/completions", completion_window="24h"
    ).id


def ended(api: openai.OpenAI, batch: str) -> Any:
    """Wait for the end of a batch."""
    wait = threading.Event()
    while (found := api.batches.retrieve(batch)).status not in ENDED:
        wait.wait(0.02)
    return found


def completed(api: openai.OpenAI, batch: str) -> int:
    counts = api.batches.retrieve(batch).request_counts
    assert counts is not None
    return counts.completed


def records(api: openai.OpenAI, file: str | None) -> list[dict[str, Any]]:
    return [] if file is None else [json.loads(raw) for raw in api.files.content(file).iter_lines()]


def text_of(record: dict[str, Any]) -> str:
    return str(record["response"]["body"]["choices"][0]["message"]["content"])


def test_batch_answers_as_the_service_does(api: openai.OpenAI) -> None:
    names = [f"line-{i}" for i in range(20)]
    batch = ended(api, begin(api, upload(api, *(line(n, seed=i) for i, n in enumerate(names)))))
    assert batch.status == "completed"
    assert (batch.request_counts.total, batch.request_counts.completed) == (20, 20)
    assert batch.error_file_id is None
    found = records(api, batch.output_file_id)
    assert [each["custom_id"] for each in found] == names
    assert batch.usage.total_tokens == sum(
        each["response"]["body"]["usage"]["total_tokens"] for each in found
    )
    asked = line(names[7], seed=7)["body"]
    alone = api.chat.completions.create(**asked)
    assert text_of(found[7]) == alone.choices[0].message.content


def test_line_that_is_refused_is_in_the_file_of_errors(api: openai.OpenAI) -> None:
    lines = [line("good"), line("hot", temperature=9), line("s", stream=True), line("m", model="x")]
    batch = ended(api, begin(api, upload(api, *lines)))
    assert batch.status == "completed"
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 3)
    assert [each["custom_id"] for each in records(api, batch.output_file_id)] == ["good"]
    errors = records(api, batch.error_file_id)
    assert [each["response"]["status_code"] for each in errors] == [400, 400, 404]
    assert all(each["response"]["body"]["error"]["message"] for each in errors)


def test_batch_of_responses(api: openai.OpenAI) -> None:
    body = {"model": "model_dir", "input": "def ", "max_output_tokens": 5, "seed": 1}
    asked = {"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": body}
    file = upload(api, asked)
    batch = api.batches.create(
        input_file_id=file, endpoint="/v1/responses", completion_window="24h"
    )
    (found,) = records(api, ended(api, batch.id).output_file_id)
    alone = api.responses.create(
        model="model_dir", input="def ", max_output_tokens=5, extra_body={"seed": 1}
    )
    (item,) = found["response"]["body"]["output"]
    assert item["content"][0]["text"] == alone.output_text
    assert ended(api, batch.id).usage.output_tokens == 5


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([""], "empty_file"),
        (["{"], "invalid_json_line"),
        (["[" * 5000], "invalid_json_line"),
        (["[]"], "invalid_request"),
        ([line("a"), line("a")], "duplicate_custom_id"),
        ([line("a") | {"url": "/v1/completions"}], "invalid_url"),
        ([line("a") | {"method": "GET"}], "invalid_request"),
        ([line("a") | {"more": 1}], "invalid_request"),
        ([line("a"), "x" * (1 << 20 | 1)], "line_too_long"),
    ],
)
def test_file_that_is_no_batch_is_told_with_its_line(
    api: openai.OpenAI, lines: list[Any], code: str
) -> None:
    batch = ended(api, begin(api, upload(api, *lines)))
    assert batch.status == "failed"
    assert batch.errors.data[0].code == code
    assert batch.errors.data[0].line == (None if code == "empty_file" else len(lines))
    assert batch.output_file_id is None


def test_batch_that_is_cancelled_keeps_what_it_has(api: openai.OpenAI) -> None:
    lines = [line("short", max_tokens=1), *(line(f"l{i}", max_tokens=80) for i in range(300))]
    name = begin(api, upload(api, *lines))
    wait = threading.Event()
    while not completed(api, name):
        wait.wait(0.01)
    assert api.batches.cancel(name).status in ("cancelling", "cancelled")
    batch = ended(api, name)
    assert batch.status == "cancelled"
    found = records(api, batch.output_file_id)
    assert found[0]["custom_id"] == "short"
    assert len(found) == batch.request_counts.completed < len(lines)
    with pytest.raises(openai.ConflictError):
        api.batches.cancel(name)


def test_batch_goes_on_after_a_restart(answers: Answers, tmp_path: Path) -> None:
    """And asks no line again that was written."""
    lines = [line(f"l{i}", max_tokens=20) for i in range(48)]
    with TestClient(make_app(answers, tmp_path), base_url=LOCAL) as client:
        api = openai_client(client)
        name = begin(api, upload(api, *lines))
        wait = threading.Event()
        while not (done := completed(api, name)):
            wait.wait(0.01)
    (written,) = tmp_path.glob("file-*-results.jsonl")
    before = written.read_bytes()
    assert done <= before.count(b"\n") < len(lines)
    written.write_bytes(before + b'{"id": "batch_req_torn')
    with TestClient(make_app(answers, tmp_path), base_url=LOCAL) as client:
        api = openai_client(client)
        batch = ended(api, name)
        assert batch.status == "completed"
        assert api.files.content(batch.output_file_id).content.startswith(before)
        assert len(records(api, batch.output_file_id)) == len(lines)


def test_files_are_listed_and_deleted(api: openai.OpenAI) -> None:
    names = [upload(api, line(f"{i}")) for i in range(3)]
    assert {each.id for each in api.files.list(limit=2)} == set(names)
    assert api.files.retrieve(names[0]).bytes == len(json.dumps(line("0")))
    assert api.files.delete(names[0]).deleted
    with pytest.raises(openai.NotFoundError):
        api.files.content(names[0])
    assert len(list(api.files.list(purpose="batch"))) == 2
    assert not list(api.files.list(purpose="batch_output"))


def test_batches_are_listed(api: openai.OpenAI) -> None:
    file = upload(api, line("a"))
    names = {begin(api, file) for _ in range(3)}
    assert {each.id for each in api.batches.list(limit=2)} == names
    for name in names:
        ended(api, name)


def test_file_in_use_is_not_deleted(api: openai.OpenAI) -> None:
    file = upload(api, *(line(f"l{i}", max_tokens=80) for i in range(100)))
    name = begin(api, file)
    with pytest.raises(openai.ConflictError):
        api.files.delete(file)
    api.batches.cancel(name)
    ended(api, name)
    assert api.files.delete(file).deleted


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/files", {"data": {"purpose": "batch"}}),
        ("/v1/files", {"files": {"file": b"{}"}}),
        ("/v1/files", {"files": {"file": b"{}"}, "data": {"purpose": "vision"}}),
        ("/v1/files", {"files": {"file": b"{}"}, "data": {"purpose": "batch", "more": "1"}}),
        ("/v1/files", {"content": b"--x", "headers": {"content-type": "multipart/form-data"}}),
        ("/v1/batches", {"json": {"input_file_id": "f", "endpoint": "/v1/x"}}),
    ],
)
def test_what_is_no_file_or_batch_is_refused(
    client: TestClient, path: str, sent: dict[str, Any]
) -> None:
    refused = client.post(path, **sent)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"]


def test_file_that_is_too_large_is_refused(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waferstream.serving.http.files.FILE_BYTES", 1000)
    sent = {"files": {"file": b"x" * 2000}, "data": {"purpose": "batch"}}
    assert client.post("/v1/files", **sent).status_code == 413  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
