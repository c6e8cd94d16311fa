"""A trained model that answers: on the command line, and as a service to clients of others.

Every answer passes the strict checks of the vendor's own client.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
import torch
from cerebras.cloud import sdk
from pydantic import BaseModel

from tests.support.errors import raises
from tests.support.host.command_blocks import programs
from tests.support.runs.served_folder import CONTEXT, WAIT_S, serving, train_decoder
from waferstream.cli.main import main
from waferstream.core.errors import ConfigError
from waferstream.serving.deployment import Deployment
from waferstream.serving.models.loading import load_model

PROMPT = "def "
CHAT: dict[str, Any] = {
    "model": "model_dir",
    "messages": [{"role": "system", "content": "x = 1"}, {"role": "user", "content": "def "}],
    "max_completion_tokens": 12,
    "seed": 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_decoder(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A service of its own process, which ends by SIGTERM."""
    with serving(folder) as place:
        yield place


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=WAIT_S) as made:
        yield made


@pytest.fixture
def vendor(url: str) -> Iterator[Any]:
    made = sdk.Cerebras(
        base_url=url.removesuffix("/v1"),
        api_key="none",
        timeout=WAIT_S,
        max_retries=0,
        _strict_response_validation=True,
    )
    with made:
        yield made


def ask(client: openai.OpenAI, **changes: Any) -> Any:
    asked: dict[str, Any] = {
        "model": "model_dir",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_completion_tokens": 20,
        "seed": 5,
    }
    return client.chat.completions.create(**asked | changes)


def text_of(answer: Any) -> str:
    text: str = answer.choices[0].message.content
    return text


def generate(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["generate", str(folder), PROMPT, "--json", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_greedy_answer_is_that_of_plain_pytorch(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole sequence through the model for every token."""
    model = load_model(folder)
    tokens = list(model.text.encode(PROMPT))
    with torch.no_grad():
        for _ in range(CONTEXT - len(tokens)):
            scores = model.scores(torch.tensor([tokens]), torch.arange(len(tokens))[None])
            tokens.append(int(scores[0, -1].argmax()))
    found = generate(folder, capsys, "--temperature", "0")
    decoder = model.text.decoder()
    expected = "".join(decoder.feed(token) for token in tokens[len(PROMPT) :]) + decoder.end()
    assert found["text"] == expected
    assert found["finish_reason"] == "length"
    assert found["completion_tokens"] == CONTEXT - len(PROMPT)
    assert 0 < found["emulated_prompt_s"] < 1


def test_service_and_command_give_one_answer(
    client: openai.OpenAI, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone, in the company of others, streamed, and on the command line."""
    alone = [text_of(ask(client, seed=seed)) for seed in range(4)]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda seed: text_of(ask(client, seed=seed % 4)), range(24)))
    assert together == alone * 6
    assert len(set(alone)) == 4
    words = ("--seed", "2", "--max_tokens", "20")
    assert generate(folder, capsys, *words)["text"] == alone[2]


def test_draft_changes_no_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model itself as its draft, which is always right."""
    words = ("--seed", "2", "--max_tokens", "40")
    plain = generate(folder, capsys, *words)
    drafted = generate(folder, capsys, *words, "--draft", str(folder))
    assert drafted["text"] == plain["text"]


def test_draft_of_other_tokens_is_refused(folder: Path) -> None:
    deployment = Deployment(folder, draft=folder)
    served = deployment.load()
    assert deployment.load_draft(served)
    with raises(ConfigError, "draft-of-other-tokens"):
        deployment.load_draft(replace(served, vocabulary=255))


def test_streamed_answer_is_the_whole_one(client: openai.OpenAI) -> None:
    whole = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == text_of(whole)
    assert chunks[-1].usage == whole.usage
    assert whole.usage.completion_tokens == 20
    assert whole.time_info["total_time"] > 0
    assert whole.seed == 5


def test_text_is_continued_up_to_a_stop(client: openai.OpenAI) -> None:
    found = client.completions.create(model="model_dir", prompt=PROMPT, seed=1, max_tokens=30)
    text = found.choices[0].text
    stop = text[10:12]
    cut = client.completions.create(
        model="model_dir", prompt=PROMPT, seed=1, max_tokens=30, stop=[stop, "never"]
    )
    assert cut.choices[0].text == text[: text.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_choices_come_together_as_alone(client: openai.OpenAI) -> None:
    """The first is the answer to a request for one; streamed, they come mixed."""
    alone = ask(client, max_completion_tokens=12)
    whole = ask(client, max_completion_tokens=12, n=3, logprobs=True, top_logprobs=2)
    texts = [choice.message.content for choice in whole.choices]
    assert texts[0] == text_of(alone)
    assert len(set(texts)) == 3
    assert whole.usage.prompt_tokens == alone.usage.prompt_tokens
    assert whole.usage.completion_tokens == 36
    streamed = ["", "", ""]
    tokens: list[list[Any]] = [[], [], []]
    for chunk in ask(client, max_completion_tokens=12, n=3, logprobs=True, stream=True):
        (choice,) = chunk.choices
        streamed[choice.index] += choice.delta.content or ""
        tokens[choice.index] += choice.logprobs.content if choice.logprobs else []
    assert streamed == texts
    assert [[each.logprob for each in told] for told in tokens] == [
        [each.logprob for each in choice.logprobs.content] for choice in whole.choices
    ]


class Point(BaseModel):
    """What an answer is parsed into."""

    is_far: bool
    places: list[Literal["x", "y"]]


def test_answer_is_parsed_into_a_model(client: openai.OpenAI) -> None:
    asked: Any = [{"role": "user", "content": PROMPT}]
    bias = {str(ord("]")): 20, str(ord(" ")): -100, "10": -100}  # short, and an array that ends
    found = client.chat.completions.parse(
        model="model_dir", messages=asked, response_format=Point, seed=2, logit_bias=bias
    )
    assert isinstance(found.choices[0].message.parsed, Point)


def test_models_are_described(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id).id == "model_dir"


@pytest.mark.parametrize(
    ("changes", "error", "code"),
    [
        ({"model": "model_di"}, openai.NotFoundError, "model_not_found"),
        ({"messages": []}, openai.BadRequestError, "invalid_request"),
        ({"temperature": 3}, openai.BadRequestError, "invalid_request"),
        ({"n": 129}, openai.BadRequestError, "invalid_request"),
        ({"top_logprobs": 2}, openai.BadRequestError, "invalid_request"),
        ({"logit_bias": {"256": 1}}, openai.BadRequestError, "no-such-token"),
        ({"stop": ""}, openai.BadRequestError, "invalid_request"),
        ({"max_tokens": 3}, openai.BadRequestError, "invalid_request"),
        ({"max_completion_tokens": 200}, openai.BadRequestError, "context-exceeded"),
        ({"messages": [{"role": "user", "content": "x" * 2**21}]}, openai.APIStatusError, "body_too_large"),
        ({"messages": [{"role": "user", "content": ""}]}, openai.BadRequestError, "empty-request"),
    ],
)  # fmt: skip
def test_what_is_not_computed_is_refused(
    client: openai.OpenAI, changes: dict[str, Any], error: type[openai.APIStatusError], code: str
) -> None:
    """And the service goes on."""
    with pytest.raises(error) as caught:
        ask(client, **changes)
    assert caught.value.code == code
    assert text_of(ask(client))


def test_client_that_leaves_does_not_hold_the_service(client: openai.OpenAI, url: str) -> None:
    for _ in range(3):
        with ask(client, stream=True, max_completion_tokens=90) as stream:
            next(iter(stream))
    host, port = url.split("/")[2].split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as raw:
        raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{")
    assert text_of(ask(client))


def test_folder_without_a_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(tmp_path), "x"]) == 1
    assert "nothing-to-serve" in capsys.readouterr().err


def test_published_name_without_weights_is_told_where_it_works(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["generate", "llama-3.1-70b", "x"]) == 1
    assert "--plan or --simulate" in capsys.readouterr().err


def test_request_out_of_range_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(folder), PROMPT, "--stop", ""]) == 1
    assert "out-of-range" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--top_k", "--top_p"])
def test_number_out_of_range_is_a_wrong_command_line(
    folder: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["generate", str(folder), PROMPT, flag, "0"])
    assert ended.value.code == 2
    assert f"'{flag}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--host", "0.0.0.0"], "serve-beyond-loopback"),
        (["--host", "nowhere.example"], "serve-beyond-loopback"),
    ],
)
def test_address_that_cannot_be_served_is_refused(
    folder: Path, words: list[str], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(folder), *words]) == 1
    assert code in capsys.readouterr().err


def test_port_in_use_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(folder), "--port", f"{port}"]) == 1
    assert "serve-port-in-use" in capsys.readouterr().err


def test_program_of_the_readme_prints_an_answer(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the port of this service."""
    program = programs("README.md")[1]
    names: dict[str, Any] = {}
    exec(program.replace("http://127.0.0.1:8000/v1", url), names)
    names["client"].close()
    assert "total_time" in capsys.readouterr().out


def test_connection_is_opened_in_advance(vendor: Any) -> None:
    assert vendor.get("/v1/tcp_warming", cast_to=str) == ""


def test_chat_tells_usage_and_times(vendor: Any) -> None:
    found = vendor.chat.completions.create(**CHAT)
    assert found.choices[0].finish_reason == "length"
    assert found.usage.total_tokens == found.usage.prompt_tokens + 12
    times = found.time_info
    assert times.total_time == times.queue_time + times.prompt_time + times.completion_time > 0


def test_streamed_chat_is_the_whole_one_with_its_times(vendor: Any) -> None:
    whole = vendor.chat.completions.create(**CHAT)
    chunks = list(
        vendor.chat.completions.create(**CHAT, stream=True, stream_options={"include_usage": True})
    )
    text = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    assert chunks[-2].time_info.total_time == whole.time_info.total_time


def test_text_is_continued_in_pieces(vendor: Any) -> None:
    asked: dict[str, Any] = {"model": "model_dir", "prompt": "def ", "max_tokens": 8, "seed": 1}
    whole = vendor.completions.create(**asked)
    chunks = list(vendor.completions.create(**asked, stream=True))
    assert "".join(each.choices[0].text or "" for each in chunks) == whole.choices[0].text


def test_models_are_described_to_the_vendor_s_client(vendor: Any) -> None:
    (model,) = vendor.models.list().data
    assert vendor.models.retrieve(model.id).id == "model_dir"
    with pytest.raises(sdk.BadRequestError):
        vendor.models.list(format="openrouter")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": "llama"}, sdk.NotFoundError),
        ({"temperature": -1}, sdk.BadRequestError),
        ({"clear_thinking": True}, sdk.BadRequestError),
    ],
)
def test_refusals_are_the_errors_of_the_client(
    vendor: Any, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        vendor.chat.completions.create(**CHAT | changes)


@pytest.mark.parametrize(
    ("given", "is_kept"), [("trace-7:a.b", True), ("", False), ("x" * 129, False), ("a b", False)]
)
def test_request_keeps_a_sane_name(vendor: Any, given: str, is_kept: bool) -> None:
    raw = vendor.models.with_raw_response.list(extra_headers={"x-request-id": given})
    assert (raw.headers["x-request-id"] == given) == is_kept


def test_failures_have_a_name(vendor: Any) -> None:
    for path in ("/v1/nowhere", "/v1/chat/completions"):
        with pytest.raises(sdk.APIStatusError) as caught:
            vendor.get(path, cast_to=str)
        assert caught.value.response.headers["x-request-id"].startswith("req_")
