from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import RequestRefused
from waferstream.core.serving import Usage
from waferstream.serving.accounts import writer
from waferstream.serving.accounts.keys import Key
from waferstream.serving.accounts.store import AnswerRow, Store
from waferstream.serving.accounts.writer import Writer

WAIT_S = 30
ROW = AnswerRow("a1", "one", "model", "default", 0.0, Usage(5, 0, 0), 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "accounts.db"
    with closing(Store(file)) as store:
        store.add(Key("one", "digest", 0.0))
    return file


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    with closing(Store(file)) as made:
        yield made


@pytest.fixture
def running(store: Store) -> Iterator[Writer]:
    made = Writer(store, lambda _: None)
    made.start()
    yield made
    made.close()


def test_full_disk_loses_and_repeats_nothing(store: Store, running: Writer, file: Path) -> None:
    """Answers that began are counted when there is room again; others do not begin."""
    running.begin(ROW).result(WAIT_S)
    connection = store._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    begun = 1
    with raises(RequestRefused, "accounts-not-written"):
        while begun < 10_000:
            running.begin(replace(ROW, name=f"a{begun + 1}", model="m" * 500)).result(WAIT_S)
            begun += 1
    for each in range(begun):
        running.end(f"a{each + 1}", replace(ROW, name=f"a{each + 1}", usage=Usage(5, 0, 7)))
    with raises(RequestRefused, "accounts-not-written"):
        running.begin(replace(ROW, name="late", model="m" * 500)).result(WAIT_S)
    connection.execute("PRAGMA max_page_count = 100000")
    running.begin(replace(ROW, name="last")).result(WAIT_S)
    running.close()
    with closing(Store(file)) as again:
        assert sum(day.requests for day in again.usage()) == begun + 1
        assert sum(day.completion_tokens for day in again.usage()) == begun * 7


def test_answer_that_ends_while_the_database_is_locked_is_written_later(
    running: Writer, file: Path
) -> None:
    running.begin(ROW).result(WAIT_S)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        running.end("a1", replace(ROW, usage=Usage(5, 0, 3)))
        with raises(RequestRefused, "accounts-not-written"):
            running.begin(replace(ROW, name="a2")).result(WAIT_S)
        other.execute("ROLLBACK")
    running.close()
    with closing(Store(file)) as again:
        (day,) = again.usage()
        assert (day.requests, day.completion_tokens) == (1, 3)


def test_end_of_the_service_does_not_wait_for_ever(
    running: Writer, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "CLOSE_S", 0.2)
    running.begin(ROW).result(WAIT_S)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        running.end("a1", replace(ROW, usage=Usage(5, 0, 3)))
        running.close()
        other.execute("ROLLBACK")
    with closing(Store(file)) as again:
        assert again.end_interrupted() == 1


def test_row_of_who_no_longer_waits_can_be_taken_back(running: Writer, file: Path) -> None:
    for each in range(50):
        row = replace(ROW, name=f"a{each}")
        running.begin(row).cancel()
        running.end(row.name, None)
    running.close()
    with closing(Store(file)) as again:
        assert again.usage() == []
