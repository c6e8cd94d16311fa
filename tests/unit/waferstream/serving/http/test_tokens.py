"""Tokens of texts and chats, and their text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.runs.served_folder import CONTEXT


def test_text_has_its_tokens_and_they_have_its_text(client: TestClient) -> None:
    found = client.post("/tokenize", json={"model": "model_dir", "prompt": "def é"}).json()
    assert found["tokens"] == list("def é".encode())
    assert found["count"] == 6
    assert found["max_model_len"] == CONTEXT
    back = client.post("/detokenize", json={"tokens": found["tokens"]})
    assert back.json() == {"prompt": "def é"}


def test_chat_has_the_tokens_of_its_prompt(client: TestClient) -> None:
    messages = [{"role": "system", "content": "ab"}, {"role": "user", "content": "c"}]
    found = client.post("/tokenize", json={"messages": messages}).json()
    asked = {"model": "model_dir", "messages": messages, "max_tokens": 1}
    usage = client.post("/v1/chat/completions", json=asked).json()["usage"]
    assert found["count"] == usage["prompt_tokens"] == 4


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/tokenize", {}, 400),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, 400),
        ("/tokenize", {"prompt": "\ud800"}, 400),
        ("/tokenize", {"prompt": "a", "model": "other"}, 404),
        ("/detokenize", {"tokens": [256]}, 400),
        ("/detokenize", {"tokens": [-1]}, 400),
        ("/detokenize", {"tokens": "abc"}, 400),
    ],
)
def test_what_has_no_tokens_is_refused(
    client: TestClient, path: str, body: dict[str, Any], status: int
) -> None:
    refused = client.post(
        path, content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert refused.status_code == status
    assert refused.json()["error"]["message"]
