"""A service with keys: OpenAI's client with good, wrong, poor and revoked ones, many at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support.runs.served_folder import train_decoder
from tests.support.runs.tiny_run import ROOT
from waferstream.cli.main import main

WAIT_S = 120
PRICES = "model_dir: {input: 0.35, output: 0.75}\n"


@dataclass(frozen=True)
class Served:
    """A service, and its files."""

    url: str
    folder: Path

    def command(self, *words: str) -> list[str]:
        return ["serve", *words, "--accounts", str(self.folder / "accounts.db"), "--json"]

    def client(self, key: str) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=0, timeout=WAIT_S)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service of its own process, on all addresses."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "prices.yaml").write_text(PRICES)
    words = [
        *(sys.executable, "-m", "waferstream", "serve", str(train_decoder(folder)), "--port", "0"),
        *("--accounts", str(folder / "accounts.db"), "--prices", str(folder / "prices.yaml")),
        *("--host", "0.0.0.0"),
    ]
    assert main(Served("", folder).command("keys", "create", "a-first")) == 0
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().split(":")[-1].split("/")[0]
        yield Served(f"http://127.0.0.1:{port}/v1", folder)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == -signal.SIGTERM
        process.communicate()
    left = {each.name for each in folder.iterdir() if "accounts" in each.name}
    assert left == {"accounts.db"}


Command = Callable[..., Any]


@pytest.fixture
def command(served: Served, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command on the accounts; returns what it prints."""

    def run(*words: str) -> Any:
        assert main(served.command(*words)) == 0
        return json.loads(capsys.readouterr().out)

    return run


def ask(client: openai.OpenAI, **changes: Any) -> Any:
    asked: dict[str, Any] = {
        "model": "model_dir",
        "messages": [{"role": "user", "content": "def "}],
        "max_completion_tokens": 20,
        "seed": 5,
    }
    return client.chat.completions.create(**asked | changes)


def _ask_until_refused(client: openai.OpenAI) -> None:
    """Ask for as long as the service may take to notice."""
    while True:
        ask(client)


def test_key_opens_the_service_until_it_is_revoked(served: Served, command: Command) -> None:
    made = command("keys", "create", "anne")
    client = served.client(made["key"])
    assert ask(client).usage.completion_tokens == 20
    with pytest.raises(openai.AuthenticationError):
        ask(served.client("wsk-wrong"))
    command("keys", "revoke", "anne")
    with pytest.raises(openai.PermissionDeniedError) as caught:
        _ask_until_refused(client)
    assert caught.value.code == "key-revoked"
    (row,) = [each for each in command("keys", "list") if each["name"] == "anne"]
    assert row["revoked"]
    assert made["key"] not in json.dumps(command("keys", "list"))


def test_limit_and_balance_are_told_as_errors(served: Served, command: Command) -> None:
    limited = served.client(command("keys", "create", "cleo", "--requests_per_day", "1")["key"])
    ask(limited)
    with pytest.raises(openai.RateLimitError) as refused:
        ask(limited)
    assert refused.value.response.headers["x-ratelimit-remaining-requests-day"] == "0"
    assert int(refused.value.response.headers["retry-after"]) > 86000
    poor = served.client(command("keys", "create", "dan", "--balance", "0.00002")["key"])
    ask(poor)
    with pytest.raises(openai.APIStatusError) as empty:
        ask(poor)
    assert empty.value.status_code == 402
    command("keys", "pay", "dan", "--balance", "1")
    assert command("keys", "list")[-1]["balance"] == pytest.approx(
        1 + 2e-5 - 4 * 35e-8 - 20 * 75e-8
    )


def test_usage_of_four_tenants_at_once_is_exact(served: Served, command: Command) -> None:
    """Whole and streamed answers, some of which their clients leave."""
    names = ["t0", "t1", "t2", "t3"]
    clients = {name: served.client(command("keys", "create", name)["key"]) for name in names}

    def one(job: int) -> tuple[str, int]:
        """Return the tenant, and the tokens of the answer; -1 for one that is left."""
        name = names[job % 4]
        most = 1 + job % 7
        if job % 3:
            return name, ask(clients[name], max_completion_tokens=most).usage.completion_tokens
        stream = ask(
            clients[name],
            stream=True,
            max_completion_tokens=60 if job % 2 else most,
            stream_options={"include_usage": True},
        )
        with stream:
            if job % 2:
                next(iter(stream))
                return name, -1
            return name, list(stream)[-1].usage.completion_tokens

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(one, range(80)))
    for name in names:
        clients[name].get("/usage", cast_to=httpx.Response)  # writes what has ended
        (row,) = command("usage", "--key", name)
        mine = [tokens for tenant, tokens in found if tenant == name]
        left = mine.count(-1)
        told = sum(tokens for tokens in mine if tokens >= 0)
        assert (row["requests"], row["prompt_tokens"]) == (20, 20 * 4)
        assert told <= row["completion_tokens"] <= told + 60 * left
        cost = 4 * 20 * 350 + row["completion_tokens"] * 750
        assert row["dollars"] == cost / 10**9


def test_file_has_one_service(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(served.folder / "model_dir"), "--port", "0"]
    assert main(["serve", *words, "--accounts", str(served.folder / "accounts.db")]) == 1
    assert "accounts-in-use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("keys", "create", "a-first"), "key-exists"),
        (("keys", "revoke", "nobody"), "no-such-key"),
        (("keys", "create", "x", "--balance", "much"), "out-of-range"),
        (("keys", "create", "../x"), "out-of-range"),
        (("keys", "pay", "anne"), "out-of-range"),
    ],
)
def test_wrong_command_is_refused(
    served: Served, words: tuple[str, ...], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(served.command(*words)) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


def test_limit_out_of_range_is_a_wrong_command_line(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(served.command("keys", "create", "x", "--tokens_per_day", "0"))
    assert ended.value.code == 2
    assert "'--tokens_per_day'" in capsys.readouterr().err


def test_model_without_a_price_is_refused(
    served: Served, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "prices.yaml").write_text("model_di: {input: 1, output: 2}\n")
    words = ["serve", str(served.folder / "model_dir"), "--prices", str(tmp_path / "prices.yaml")]
    assert main([*words, "--port", "0"]) == 1
    assert "price-missing" in capsys.readouterr().err
