"""What every store does among other processes, with a full disk, a dead server, another version."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, make_url, text

from tests.contract.store_writer import SHARED
from tests.support.errors import raises
from tests.support.host.postgres import PostgresServer
from waferstream.core.errors import ApplianceServiceInterrupted, ConfigError
from waferstream.management.model.event import Submitted
from waferstream.management.model.workflow import Submission
from waferstream.management.store import tables
from waferstream.management.store.databases import postgres_engine, sqlite_engine
from waferstream.management.store.migrations import configuration, upgrade
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store
from waferstream.management.store.transactions import transaction

_LIMIT_S = 60
_TO_SHARED = Submitted(user="a", submission=Submission())


def submit(store: Store, name: str, size: int = 0) -> None:
    submission = Submission(words=("x" * size,))
    with store.change() as changes:
        changes.note(name, Submitted(user="a", submission=submission), 1.0)


def writer(place: str, what: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.contract.store_writer", place, what]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def engine_of(place: str) -> Engine:
    return postgres_engine(make_url(place)) if "://" in place else sqlite_engine(Path(place))


def test_changes_of_several_processes_do_not_interleave(store: Store, place: str) -> None:
    submit(store, SHARED)
    writers = [writer(place, "25") for _ in range(3)]
    for each in writers:
        each.communicate(timeout=_LIMIT_S)
        assert each.returncode == 0
    with store.reading() as views:
        workflow = views.workflow(SHARED)
        assert workflow is not None
        assert workflow.submission.labels == {"count": "75"}
        assert len(views.events(SHARED)) == 76


def test_process_killed_inside_a_change_leaves_nothing(store: Store, place: str) -> None:
    with writer(place, "stay") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        with store.reading() as views:
            assert views.workflows() == []
        process.kill()
    submit(store, "next")
    with store.reading() as views:
        assert [each.name for each in views.workflows()] == ["next"]


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond so much."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_loses_no_more_than_the_change(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db")
    submit(store, "before")
    with full_disk(300_000), raises(ApplianceServiceInterrupted, "store-unavailable"):
        submit(store, "lost", size=400_000)
    submit(store, "after", size=400_000)
    with store.reading() as views:
        assert [each.name for each in views.workflows()] == ["after", "before"]
    store.close()


def test_lost_server_is_a_typed_error_until_it_is_back(postgres: PostgresServer) -> None:
    store = open_store(postgres.new_database())
    with raises(ApplianceServiceInterrupted, "store-unavailable"), store.change() as changes:
        postgres.stop()
        changes.note("lost", _TO_SHARED, 1.0)
    with raises(ApplianceServiceInterrupted, "store-unavailable"):
        store.newest_event()
    postgres.start()
    submit(store, "next")
    with store.reading() as views:
        assert [each.name for each in views.workflows()] == ["next"]
    store.close()


def test_store_is_a_secret_of_its_user(tmp_path: Path) -> None:
    store = open_store(tmp_path / "management" / "store.db")
    submit(store, "a")
    assert (tmp_path / "management").stat().st_mode & 0o777 == 0o700
    files = list((tmp_path / "management").iterdir())
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    assert len(files) == 4
    store.close()


def test_store_of_a_later_release_is_refused(place: str) -> None:
    open_store(place).close()
    engine = engine_of(place)
    with transaction(engine, writes=True) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with raises(ConfigError, "store-too-new"):
        open_store(place)


def test_migrations_lead_to_the_tables_of_a_new_store(place: str) -> None:
    engine = engine_of(place)
    with transaction(engine, writes=True) as connection:
        upgrade(connection)
        script = ScriptDirectory.from_config(configuration(connection))
        assert script.get_current_head() == tables.VERSION
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, tables.metadata) == []
    engine.dispose()
    store = open_store(place)
    submit(store, "a")
    store.close()


@pytest.mark.parametrize("url", ["mysql://host/db", "://", "postgresql://h:x/y"])
def test_url_of_no_server_is_refused(url: str) -> None:
    with raises(ConfigError, "store-url"):
        open_store(url)


def test_password_is_in_no_error() -> None:
    with raises(ApplianceServiceInterrupted, "store-unavailable") as caught:
        open_store("postgresql://user:secret@127.0.0.1:1/database")
    assert "secret" not in str(caught.value)


def test_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database" * 1000)
    with raises(ApplianceServiceInterrupted, "store-unavailable"):
        open_store(path)
    with raises(ApplianceServiceInterrupted, "store-unavailable"):
        open_store(path / "below")
