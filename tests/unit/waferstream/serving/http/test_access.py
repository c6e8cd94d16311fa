"""Requests with keys: who may enter, what is counted, and what happens when it cannot be."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from tests.support.runs.served_folder import LOCAL
from waferstream.core.errors import RequestRefused
from waferstream.core.secrets import digest_of, new_secret
from waferstream.core.serving import Usage
from waferstream.serving.accounts import writer
from waferstream.serving.accounts.accounts import Accounts
from waferstream.serving.accounts.callers import Anybody, Bill
from waferstream.serving.accounts.keys import PREFIX, Key, RateLimits
from waferstream.serving.accounts.prices import Price
from waferstream.serving.accounts.store import Store
from waferstream.serving.answers import Answers
from waferstream.serving.http.app import make_app
from waferstream.serving.http.completions import Completions

PRICE = Price(input=Decimal(1), output=Decimal(2))
CHAT = "/v1/chat/completions"
KEY = Key("one", "", 0.0)
WAIT_S = 30


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "accounts.db"


@pytest.fixture
def client(file: Path, tmp_path: Path, answers: Answers) -> Iterator[TestClient]:
    """A client of a service with accounts, at noon of a day on which nothing moves."""
    with Accounts(file, PRICE, clock=lambda: 43200.0) as accounts:
        app = make_app(answers, tmp_path, accounts)
        with TestClient(app, base_url=LOCAL, raise_server_exceptions=False) as made:
            yield made


def key_of(file: Path, **terms: Any) -> dict[str, str]:
    """Make a key; return the headers of its requests."""
    secret = new_secret(PREFIX)
    with closing(Store(file)) as store:
        assert store.add(replace(KEY, digest=digest_of(secret), **terms))
    return {"authorization": f"Bearer {secret}"}


def ask(client: TestClient, headers: dict[str, str], **changes: Any) -> Any:
    asked = {
        "model": "model_dir",
        "messages": [{"role": "user", "content": "def "}],
        "max_completion_tokens": 6,
        "temperature": 0,
    }
    return client.post(CHAT, json=asked | changes, headers=headers)


def usage_of(client: TestClient, headers: dict[str, str]) -> tuple[int, int, int]:
    """Return requests, tokens of prompts and tokens of answers of a key."""
    days = client.get("/v1/usage", headers=headers).json()["days"]
    requests, prompt, completion = (
        sum(day[name] for day in days)
        for name in ("requests", "prompt_tokens", "completion_tokens")
    )
    return requests, prompt, completion


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ({}, "key-missing"),
        ({"authorization": "Basic eDp5"}, "key-missing"),
        ({"authorization": "Bearer "}, "key-missing"),
        ({"authorization": "Bearer wsk-wrong"}, "key-unknown"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/v1/usage", "/nowhere", CHAT])
def test_nobody_enters_without_a_key(
    client: TestClient, path: str, header: dict[str, str], code: str
) -> None:
    found = client.get(path, headers=header)
    assert (found.status_code, found.json()["error"]["code"]) == (401, code)
    assert client.get("/health").status_code == 200


def test_answer_is_counted_and_told(client: TestClient, file: Path) -> None:
    headers = key_of(file, paid_nanodollars=10**6)
    answer = ask(client, headers).json()
    used = answer["usage"]
    assert answer["service_tier"] == "default"
    told = client.get("/v1/usage", headers=headers).json()
    (day,) = told["days"]
    assert (day["day"], day["requests"]) == ("1970-01-01", 1)
    assert (day["prompt_tokens"], day["completion_tokens"]) == (used["prompt_tokens"], 6)
    cost = 1000 * used["prompt_tokens"] + 2000 * used["completion_tokens"]
    assert day["nanodollars"] == cost
    assert told["balance"] == pytest.approx((10**6 - cost) / 10**9)


def test_texts_are_neither_stored_nor_logged(
    client: TestClient, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "keep-this-to-yourself"
    headers = key_of(file)
    with caplog.at_level("DEBUG"):
        said = [{"role": "user", "content": secret}]
        assert ask(client, headers, messages=said).status_code == 200
        assert ask(client, headers, messages=[{"role": secret, "content": 1}]).status_code == 400
        assert ask(client, {"authorization": f"Bearer {secret}"}).status_code == 401
    assert secret not in caplog.text
    assert not any(secret.encode() in each.read_bytes() for each in file.parent.glob("*accounts*"))


def test_refused_request_is_not_counted(client: TestClient, file: Path) -> None:
    headers = key_of(file, limits=RateLimits(requests_per_day=2, tokens_per_minute=10**12))
    assert ask(client, headers, max_completion_tokens=2 * 10**12).status_code == 400
    assert ask(client, headers, messages=[]).status_code == 400
    found = client.get("/v1/limits", headers=headers)
    assert found.json()["requests"]["day"]["remaining"] == 2
    assert found.headers["x-ratelimit-remaining-tokens-minute"] == str(10**12)
    assert ask(client, headers).status_code == 200
    assert usage_of(client, headers) == (1, 4, 6)


def test_limits_are_told_and_kept(client: TestClient, file: Path) -> None:
    """A day has three requests, a minute 25 tokens, of which one takes 4 and 6."""
    headers = key_of(file, limits=RateLimits(requests_per_day=3, tokens_per_minute=25))
    for left in (15, 5):
        found = ask(client, headers)
        assert found.headers["x-ratelimit-limit-tokens-minute"] == "25"
        assert found.headers["x-ratelimit-remaining-tokens-minute"] == str(left)
    assert found.headers["x-ratelimit-limit-requests-day"] == "3"
    assert found.headers["x-ratelimit-remaining-requests-day"] == "1"
    assert float(found.headers["x-ratelimit-reset-requests-day"]) == 2 * 86400 / 3
    refused = ask(client, headers)
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "12"
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate-limit-exceeded")
    flex = ask(client, headers, service_tier="auto")
    assert flex.json()["service_tier"] == "flex"


def test_empty_balance_is_refused(client: TestClient, file: Path) -> None:
    """An answer costs 4 and 12 thousand nanodollars; twice that has been paid."""
    headers = key_of(file, paid_nanodollars=32000)
    assert [ask(client, headers).status_code for _ in range(3)] == [200, 200, 402]
    with closing(Store(file)) as store:
        store.pay("one", 16000)
    assert client.get("/v1/usage", headers=key_of(file, name="two")).status_code == 200
    assert ask(client, headers).status_code == 200


def test_streamed_answer_is_counted_when_its_client_leaves(client: TestClient, file: Path) -> None:
    headers = key_of(file)
    with client.stream(
        "POST",
        CHAT,
        headers=headers,
        json={
            "model": "model_dir",
            "messages": [{"role": "user", "content": "def "}],
            "max_completion_tokens": 80,
            "stream": True,
        },
    ) as stream:
        next(stream.iter_lines())
    requests, prompt, completion = usage_of(client, headers)
    assert (requests, prompt) == (1, 4)
    assert completion <= 80


def test_files_and_batches_are_for_their_key(client: TestClient, file: Path) -> None:
    """Who is billed for them, as the lowest tier."""
    one, two = key_of(file), key_of(file, name="two")
    body = {"model": "model_dir", "prompt": "def ", "max_tokens": 5}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": body}
    files, batches = "/v1/files", "/v1/batches"
    sent = {"file": ("asked.jsonl", json.dumps(line))}
    kept = client.post(files, headers=one, files=sent, data={"purpose": "batch"}).json()["id"]
    asked = {"input_file_id": kept, "endpoint": "/v1/completions", "completion_window": "24h"}
    assert client.post(batches, headers=two, json=asked).status_code == 404
    begun = client.post(batches, headers=one, json=asked).json()["id"]
    while (found := client.get(f"{batches}/{begun}", headers=one).json())["status"] != "completed":
        assert found["status"] in {"validating", "in_progress"}
    for path in (f"{files}/{kept}", f"{files}/{kept}/content", f"{batches}/{begun}"):
        assert client.get(path, headers=one).status_code == 200
        assert client.get(path, headers=two).status_code == 404
    for path in (files, batches):
        assert client.get(path, headers=two).json()["data"] == []
    assert client.delete(f"{files}/{kept}", headers=two).status_code == 404
    assert usage_of(client, one) == (1, 4, 5)
    assert usage_of(client, two) == (0, 0, 0)
    with closing(Store(file)) as store:
        (row,) = store.rows_since(0)
    assert row.tier == "flex"


def test_request_of_a_batch_waits_until_its_key_may_ask(answers: Answers) -> None:
    class Waiting(Anybody):
        refusals = 2

        async def begin(self, *terms: Any) -> Bill:
            if self.refusals:
                self.refusals -= 1
                raise RequestRefused("wait", code="rate-limit-exceeded").until(0.0)
            return await super().begin(*terms)

    owner = Waiting()
    body = {"model": "model_dir", "prompt": "def ", "max_tokens": 5}
    asked = Completions(answers).ask(lambda: owner, "/v1/completions", body)
    status, _ = asyncio.run(asked)
    assert (status, owner.refusals) == (200, 0)


def test_key_that_is_revoked_in_mid_stream_ends_the_stream(
    client: TestClient, file: Path, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an error as its last event, and what was used is counted."""
    monkeypatch.setattr(answers._engine, "submit", lambda *_: None)  # no token comes
    headers = key_of(file)
    url, secret = f"{client.base_url}/v1", headers["authorization"].split()[1]
    api = openai.OpenAI(base_url=url, api_key=secret, http_client=client, max_retries=0)
    with ThreadPoolExecutor(2) as pool:
        found = pool.submit(ask, client, headers, stream=True)
        by_client = pool.submit(
            lambda: list(api.completions.create(model="model_dir", prompt="x", stream=True))
        )
        while usage_of(client, headers)[0] < 2:
            assert not found.done()
            assert not by_client.done()
        with closing(Store(file)) as store:
            assert store.revoke("one", 1.0)
        events = found.result(WAIT_S).text.split("\n\n")
        with pytest.raises(openai.APIError) as caught:
            by_client.result(WAIT_S)
    last = json.loads(events[-2].removeprefix("data: "))
    assert (last["error"]["code"], last["status_code"]) == ("key-revoked", 403)
    assert caught.value.code == "key-revoked"
    with closing(Store(file)) as store:
        used = {row.usage for row in store.rows_since(0)}
    assert used == {Usage(4, 0, 0), Usage(1, 0, 0)}
    assert ask(client, headers).status_code == 403


def test_database_that_is_locked_refuses_and_recovers(client: TestClient, file: Path) -> None:
    headers = key_of(file)
    assert ask(client, headers).status_code == 200
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = ask(client, headers)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == str(int(writer.RETRY_S))
        assert refused.json()["error"]["code"] == "accounts-not-written"
        assert client.get("/v1/models", headers=headers).status_code == 200
        other.execute("ROLLBACK")
    assert ask(client, headers).status_code == 200
    assert usage_of(client, headers) == (2, 8, 12)


@pytest.mark.parametrize(
    "name", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""]
)
def test_foreign_name_of_this_host_is_refused_without_accounts(
    answers: Answers, tmp_path: Path, name: str
) -> None:
    """A page of another site would read answers by giving its own name to this host."""
    with TestClient(make_app(answers, tmp_path), base_url=LOCAL) as client:
        refused = client.get("/v1/models", headers={"host": name})
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == "host-not-loopback"
        for own in ("localhost", "127.0.0.1:8000", "[::1]:8000"):
            assert client.get("/v1/models", headers={"host": own}).status_code == 200


def test_body_of_another_type_is_refused(answers: Answers, tmp_path: Path) -> None:
    """A page of another site may send a form or a text unasked, but no JSON."""
    body = '{"model": "model_dir", "prompt": "x"}'
    with TestClient(make_app(answers, tmp_path), base_url=LOCAL) as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            headers = {"content-type": kind}
            refused = client.post("/v1/completions", content=body, headers=headers)
            assert refused.status_code == 415
