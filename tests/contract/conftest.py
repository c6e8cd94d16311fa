"""Stores of both kinds for the contract suites: a file of SQLite, a database of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.host.postgres import PostgresServer, running_postgres
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where an empty store is."""
    if request.param == "sqlite":
        return str(tmp_path / "management" / "store.db")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    store = open_store(place)
    yield store
    store.close()
