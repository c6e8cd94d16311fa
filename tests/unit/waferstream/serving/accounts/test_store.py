from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.core.secrets import digest_of, new_secret
from waferstream.core.serving import Usage
from waferstream.serving.accounts.keys import PREFIX, Key, RateLimits
from waferstream.serving.accounts.store import AnswerRow, Store

KEY = Key("one", "digest", 1.5, RateLimits(tokens_per_day=7), 3, 10**9)
ROW = AnswerRow("a1", "one", "model", "flex", 86400.0, Usage(5, 0, 0), 50)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "accounts.db"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    with closing(Store(file)) as made:
        made.add(KEY)
        yield made


def test_keys_come_back_as_they_were(store: Store, file: Path) -> None:
    assert not store.add(replace(KEY, digest="other"))
    assert store.pay("one", 5)
    assert store.revoke("one", 2.0)
    assert store.revoke("one", 3.0)
    assert not store.pay("two", 1)
    with closing(Store(file)) as again:
        assert again.known_keys() == [replace(KEY, paid_nanodollars=10**9 + 5, revoked_s=2.0)]


def test_file_is_for_its_user_and_has_no_secret(store: Store, file: Path) -> None:
    secret = new_secret(PREFIX)
    store.add(Key("two", digest_of(secret), 2.0))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    files = [each.read_bytes() for each in file.parent.iterdir()]
    assert not any(secret.encode() in each for each in files)


def test_answer_is_counted_once(store: Store) -> None:
    ended = replace(ROW, usage=Usage(5, 2, 9), nanodollars=140)
    store.write(ended=[], begun=[ROW], void=[])
    assert store.spent() == {"one": 50}
    for _ in range(2):
        store.write(ended=[ended], begun=[], void=[])
    assert store.rows_since(0) == [ended]
    (day,) = store.usage("one")
    assert (day.day, day.requests, day.prompt_tokens, day.cached_tokens) == ("1970-01-02", 1, 5, 2)
    assert (day.completion_tokens, day.nanodollars) == (9, 140)
    assert store.usage("two") == []


def test_answer_that_begins_and_ends_in_one_transaction_is_counted(store: Store) -> None:
    store.write(ended=[replace(ROW, usage=Usage(5, 0, 1))], begun=[ROW], void=[])
    (day,) = store.usage()
    assert day.completion_tokens == 1
    store.write(ended=[], begun=[replace(ROW, name="a2")], void=["a2"])
    assert len(store.rows_since(0)) == 1


def test_interrupted_answer_costs_its_prompt(store: Store) -> None:
    store.write(ended=[], begun=[ROW], void=[])
    assert store.end_interrupted() == 1
    store.write(ended=[replace(ROW, usage=Usage(5, 0, 9))], begun=[], void=[])
    assert store.rows_since(0) == [ROW]


def test_keys_are_read_again_when_another_process_writes(store: Store, file: Path) -> None:
    assert store.changed_keys() == [KEY]
    assert store.changed_keys() is None
    with closing(Store(file)) as other:
        other.revoke("one", 4.0)
    (key,) = store.changed_keys() or []
    assert key.revoked_s == 4.0


def test_new_file_is_made_by_one_of_many(tmp_path: Path) -> None:
    def make(number: int) -> bool:
        with closing(Store(tmp_path / "new.db")) as store:
            return store.add(Key(f"k{number}", f"d{number}", 0.0))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(make, range(8)))


def test_file_that_was_removed_is_not_written(store: Store, file: Path) -> None:
    file.unlink()
    with pytest.raises(sqlite3.OperationalError):
        store.write(ended=[], begun=[ROW], void=[])


def test_file_that_cannot_be_opened_is_refused(file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with raises(ConfigError, "accounts-not-open"):
            Store(file)


@pytest.mark.parametrize("content", [b"no database at all, but text", None])
def test_foreign_file_is_refused(file: Path, content: bytes | None) -> None:
    if content is None:
        with closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE other (name TEXT)")
    else:
        file.write_bytes(content * 100)
    with raises(ConfigError, "not-accounts"):
        Store(file)
