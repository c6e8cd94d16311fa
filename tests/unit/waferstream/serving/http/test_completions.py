"""Chats and completions: how tokens are drawn and told, several answers, several prompts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient

from waferstream.serving.answers import Answers

PROMPT = "def "


def complete(client: TestClient, **changes: Any) -> dict[str, Any]:
    asked = {"model": "model_dir", "prompt": PROMPT, "max_tokens": 12, "seed": 5}
    answer = client.post("/v1/completions", json=asked | changes)
    assert answer.status_code == 200, answer.json()
    return answer.json()


def events(client: TestClient, path: str, **asked: Any) -> list[dict[str, Any]]:
    answer = client.post(path, json={"model": "model_dir", "stream": True, **asked})
    *lines, done = [line for line in answer.text.split("\n\n") if line]
    assert done == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_logprobs_are_those_of_the_plain_model(client: TestClient, answers: Answers) -> None:
    """The whole sequence in one forward pass, whatever steers the draw."""
    found = complete(client, logprobs=5, frequency_penalty=1.5, logit_bias={"97": 3}, top_k=50)
    told = found["choices"][0]["logprobs"]
    prompt = list(PROMPT.encode())
    decode = {_name(byte): byte for byte in range(256)}
    tokens = [decode[token] for token in told["tokens"]]
    with torch.no_grad():
        whole = torch.tensor([prompt + tokens])
        scores = answers.model.scores(whole, torch.arange(whole.shape[1])[None])[0]
    logprobs = scores.double().log_softmax(-1)[len(prompt) - 1 : -1]
    drawn = logprobs[range(len(tokens)), tokens]
    assert told["token_logprobs"] == pytest.approx(drawn.tolist(), abs=1e-4)
    for row, best in zip(logprobs, told["top_logprobs"], strict=True):
        assert sorted(best.values())[-5:] == pytest.approx(sorted(row.tolist())[-5:], abs=1e-4)


def _name(byte: int) -> str:
    return chr(byte) if byte < 128 else f"bytes:\\x{byte:02x}"


def test_tokens_are_told_up_to_a_stop(client: TestClient) -> None:
    """A token is told when its text is."""
    text = complete(client)["choices"][0]["text"]
    cut = complete(client, stop=text[4:7], logprobs=0)["choices"][0]
    assert cut["text"] == text[:4]
    assert cut["logprobs"]["text_offset"] == sorted(cut["logprobs"]["text_offset"])
    assert all(offset < 4 for offset in cut["logprobs"]["text_offset"])
    assert "".join(cut["logprobs"]["tokens"]).encode().startswith(cut["text"].encode()[:1])


def test_prompts_are_answered_as_alone(client: TestClient) -> None:
    """Texts or tokens, each with all its choices."""
    prompts = ["def ", "class "]
    alone = [complete(client, prompt=prompt, n=2)["choices"] for prompt in prompts]
    together = complete(client, prompt=prompts, n=2)
    texts = [choice["text"] for choice in together["choices"]]
    assert texts == [choice["text"] for choices in alone for choice in choices]
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3]
    assert together["usage"]["prompt_tokens"] == len("def class ")
    as_tokens = complete(client, prompt=[list(prompt.encode()) for prompt in prompts], n=2)
    assert [choice["text"] for choice in as_tokens["choices"]] == texts


def test_chunks_tell_the_usage_so_far(client: TestClient) -> None:
    """As vLLM's do, which load generators ask for."""
    asked = {"prompt": PROMPT, "max_tokens": 6, "ignore_eos": True}
    options = {"continuous_usage_stats": True}
    chunks = events(client, "/v1/completions", **asked, stream_options=options)
    told = [each["usage"] for each in chunks if "usage" in each]
    assert [each["prompt_tokens"] for each in told] == [4] * len(told)
    assert told[-1]["completion_tokens"] == 6
    assert told[-1]["total_tokens"] == 10


def test_answer_goes_on_behind_its_ends_on_request(
    client: TestClient, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = complete(client)["choices"][0]["text"]
    last = next(letter for letter in text[1:] if letter.isascii())
    monkeypatch.setattr(type(answers.model.text), "ends", frozenset((ord(last),)))
    assert complete(client)["choices"][0]["text"] == text[: text.index(last)]
    assert complete(client, ignore_eos=True)["choices"][0]["text"] == text


def test_prompt_is_echoed(client: TestClient) -> None:
    plain, echoed = complete(client)["choices"][0], complete(client, echo=True)["choices"][0]
    assert echoed["text"] == PROMPT + plain["text"]
    found = complete(client, echo=True, prompt=list(PROMPT.encode()))["choices"][0]
    assert found["text"] == echoed["text"]
    asked = {"prompt": PROMPT, "echo": True, "max_tokens": 12, "seed": 5}
    chunks = events(client, "/v1/completions", **asked)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == echoed["text"]


def test_tokens_of_a_chat_have_bytes(client: TestClient) -> None:
    asked = {
        "messages": [{"role": "user", "content": PROMPT}], "max_completion_tokens": 12, "seed": 5,
        "logprobs": True, "top_logprobs": 20, "logit_bias": {"195": 20, "169": 20},
    }  # fmt: skip
    chunks = events(client, "/v1/chat/completions", **asked)
    told = [
        each
        for chunk in chunks
        if chunk["choices"][0]["logprobs"]
        for each in chunk["choices"][0]["logprobs"]["content"]
    ]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert bytes(byte for each in told for byte in each["bytes"]).decode(errors="replace") == text
    assert all(len(each["top_logprobs"]) == 20 for each in told)
    assert len(told) == 12


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"logprobs": 6}, "invalid_request"),
        ({"logprobs": 1, "echo": True}, "invalid_request"),
        ({"frequency_penalty": 2.5}, "invalid_request"),
        ({"logit_bias": {"1": 101}}, "invalid_request"),
        ({"logit_bias": {"x": 1}}, "invalid_request"),
        ({"min_tokens": -1}, "invalid_request"),
        ({"prompt": []}, "invalid_request"),
        ({"prompt": [[]]}, "invalid_request"),
        ({"prompt": ["a"] * 50, "n": 3}, "invalid_request"),
        ({"prompt": [1, "a"]}, "invalid_request"),
        ({"prompt": [256]}, "no-such-token"),
        ({"prompt": ["a", "a" * 200]}, "context-exceeded"),
        ({"prompt": [256], "echo": True}, "no-such-token"),
        ({"prompt": "\ud800"}, "invalid_request"),
    ],
)
def test_what_is_not_computed_is_refused(
    client: TestClient, changes: dict[str, Any], code: str
) -> None:
    """All of it, if one prompt is."""
    asked = {"model": "model_dir", "prompt": PROMPT, "max_tokens": 12}
    refused = client.post(
        "/v1/completions",
        content=json.dumps(asked | changes),
        headers={"content-type": "application/json"},
    )
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == code
    assert complete(client)


SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "id": {"type": "integer", "maximum": 99}},
    "required": ["ok", "id"],
    "additionalProperties": False,
}


def chat(client: TestClient, **changes: Any) -> Any:
    messages = [{"role": "user", "content": PROMPT}]
    asked = {"model": "model_dir", "messages": messages, "max_tokens": 60, "seed": 5}
    return client.post(
        "/v1/chat/completions",
        content=json.dumps(asked | changes),
        headers={"content-type": "application/json"},
    )


def formatted(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


@pytest.mark.parametrize("seed", range(4))
def test_answer_follows_its_format(client: TestClient, seed: int) -> None:
    bias = {str(space): -100 for space in b" \n"}  # a random model would lay it out for ever
    asked = {"response_format": formatted(SCHEMA), "seed": seed, "logit_bias": bias}
    choice = chat(client, **asked).json()["choices"][0]
    found = json.loads(choice["message"]["content"])
    assert isinstance(found["ok"], bool)
    assert found["id"] <= 99
    assert choice["finish_reason"] == "stop"


def test_format_leaves_logprobs_as_they_are(client: TestClient) -> None:
    """The first token, which the format forces, is as likely as it is without."""
    asked = {"logprobs": True, "max_tokens": 1}
    told = chat(client, **asked, response_format={"type": "json_object"}).json()["choices"][0]
    (first,) = told["logprobs"]["content"]
    assert first["token"] == "{"
    assert first["logprob"] < -1
    assert told["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("response_format", "code"),
    [
        ({"type": "xml"}, "invalid_request"),
        ({"type": "json_schema"}, "invalid_request"),
        (formatted({"type": "integer", "minimum": 3, "maximum": 2}), "format-not-possible"),
        (formatted({"type": "string", "minLength": 10**8}), "schema-too-large"),
    ],
)
def test_format_that_nothing_fits_is_refused(
    client: TestClient, response_format: dict[str, Any], code: str
) -> None:
    refused = chat(client, response_format=response_format)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == code


def test_predicted_output_changes_the_usage_alone(client: TestClient) -> None:
    letters = {str(token): 100 for token in b"abc"}
    plain = chat(client, logit_bias=letters, max_tokens=12).json()
    text = plain["choices"][0]["message"]["content"]
    prediction = {"type": "content", "content": [{"type": "text", "text": text + "and more"}]}
    asked = {"logit_bias": letters, "max_tokens": 12, "prediction": prediction}
    found = chat(client, **asked).json()
    assert found["choices"] == plain["choices"]
    told = found["usage"].pop("completion_tokens_details")
    accepted = {"accepted_prediction_tokens": 12, "rejected_prediction_tokens": 8}
    assert told == {"reasoning_tokens": 0, **accepted}
    assert plain["usage"].pop("completion_tokens_details") == dict.fromkeys(told, 0)
    assert found["usage"] == plain["usage"]


def test_beginning_is_shared_by_requests_of_one_key(client: TestClient) -> None:
    prompt = "x" * 140

    def cached(**changes: Any) -> int:
        found = complete(client, prompt=prompt, **changes)["usage"]["prompt_tokens_details"]
        count: int = found["cached_tokens"]
        return count

    assert cached(prompt_cache_key="a") == 0
    assert cached(prompt_cache_key="a", prompt_cache_retention="1h") == 128
    assert cached(prompt_cache_key="b") == 0
    asked = {"model": "model_dir", "prompt": prompt, "prompt_cache_retention": "24h"}
    assert client.post("/v1/completions", json=asked).status_code == 400


def test_answer_that_comes_too_late_is_told_so(client: TestClient) -> None:
    asked = {"model": "model_dir", "prompt": PROMPT, "max_tokens": 100, "deadline_s": 1e-4}
    refused = client.post("/v1/completions", json=asked)
    assert refused.status_code == 408
    assert refused.json()["error"]["code"] == "deadline-passed"
    assert complete(client, deadline_s=60)["usage"]["completion_tokens"] == 12
    assert client.post("/v1/completions", json=asked | {"deadline_s": 0}).status_code == 400


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"stop": list("abcde")}, "stop: List should have at most 4 items"),
        ({"echo": True, "logprobs": 1}, "echo and logprobs exclude each other"),
    ],
)
def test_refusal_tells_the_rule_that_is_broken(
    client: TestClient, changes: dict[str, Any], rule: str
) -> None:
    asked = {"model": "model_dir", "prompt": PROMPT}
    answer = client.post("/v1/completions", json=asked | changes)
    assert answer.json()["error"]["message"].startswith(rule)


def test_model_is_described_once_its_file_is_gone(client: TestClient, answers: Answers) -> None:
    """A training that goes on removes old checkpoints."""
    before = client.get("/v1/models").json()
    weights = answers.model.weights
    aside = weights.rename(weights.with_suffix(".aside"))
    try:
        assert client.get("/v1/models").json() == before
        assert complete(client)["choices"][0]["text"]
    finally:
        aside.rename(weights)
