from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from waferstream.cli.main import main
from waferstream.core.secrets import digest_of
from waferstream.core.serving import Usage
from waferstream.serving.accounts.store import AnswerRow, Store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "accounts.db"


def run(file: Path, *words: str) -> int:
    return main(["serve", *words, "--accounts", str(file)])


def test_key_is_shown_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, "keys", "create", "anne", "--balance", "0", "--tokens_per_day", "9") == 0
    secret = capsys.readouterr().out.split()[-1]
    assert run(file, "keys", "list") == 0
    listed = capsys.readouterr().out
    assert secret not in listed
    assert "anne" in listed
    with closing(Store(file)) as store:
        (key,) = store.known_keys()
    assert key.digest == digest_of(secret)
    assert (key.limits.tokens_per_day, key.paid_nanodollars) == (9, 0)


def test_usage_is_a_table_by_day(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(file, "keys", "create", "anne")
    row = AnswerRow("a", "anne", "model", "default", 0.0, Usage(5, 0, 7), 2_500_000)
    with closing(Store(file)) as store:
        store.write(ended=[row], begun=[row], void=[])
    capsys.readouterr()
    assert run(file, "usage") == 0
    head, line = capsys.readouterr().out.splitlines()
    assert dict(zip(head.split(), line.split(), strict=True)) == {
        "key": "anne",
        "model": "model",
        "day": "1970-01-01",
        "requests": "1",
        "prompt_tokens": "5",
        "cached_tokens": "0",
        "completion_tokens": "7",
        "dollars": "0.0025",
    }
    assert run(file, "usage", "--key", "ben") == 0
    assert capsys.readouterr().out == "(none)\n"


@pytest.mark.parametrize("words", [("keys", "list"), ("keys", "revoke", "anne"), ("usage",)])
def test_file_that_is_not_there_is_not_made(
    file: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(file, *words) == 1
    assert "accounts-missing" in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize("words", [("keys", "list", "anne"), ("keys", "create"), ("keys", "sell")])
def test_wrong_words_are_a_wrong_command_line(file: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(file, *words)
    assert caught.value.code == 2
