"""SQLite and PostgreSQL, so far as they differ: reaching one, and beginning a transaction."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection as SqliteConnection

from sqlalchemy import URL, Connection, Engine, create_engine, event

from waferstream.host.locks import locked
from waferstream.host.user_state import make_private, open_private
from waferstream.management.store.transactions import WRITES

WAIT_S = 10.0
"""How long a change waits for another one."""

_ADVISORY_LOCK = 0x57616665
"""Number of the lock that a change holds in PostgreSQL: nobody else there may use it."""

_POSTGRES_OPTIONS = {
    "connect_timeout": "5",
    "options": f"-c lock_timeout={WAIT_S:.0f}s -c statement_timeout=30s"
    " -c idle_in_transaction_session_timeout=60s",
}


def sqlite_engine(path: Path) -> Engine:
    """Return the database in a file that only this user can read, which is made if need be.

    Raises:
        OSError: The file cannot be made.
        DBAPIError: It is no database.
    """
    make_private(path.parent)
    engine = create_engine(
        URL.create("sqlite", database=str(path)), connect_args={"timeout": WAIT_S}
    )
    event.listen(engine, "connect", _connected)
    event.listen(engine, "begin", _begin_sqlite)
    with locked(path.with_name(f"{path.name}.lock")):
        open(path, "ab", opener=open_private).close()
        engine.connect().close()
    return engine


def postgres_engine(url: URL) -> Engine:
    """Return the database of a server, whose connections are replaced when they are lost."""
    options = {**_POSTGRES_OPTIONS, **url.query}
    engine = create_engine(
        url.set(drivername="postgresql+psycopg", query=options), pool_pre_ping=True
    )
    event.listen(engine, "begin", _begin_postgres)
    return engine


def _connected(connection: SqliteConnection, _record: object) -> None:
    connection.isolation_level = None  # transactions begin as _begin_sqlite says
    connection.execute("PRAGMA journal_mode = WAL")  # who reads and who writes do not wait
    connection.execute("PRAGMA synchronous = NORMAL")  # a power failure may lose the last changes


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options()[WRITES]
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _begin_postgres(connection: Connection) -> None:
    if connection.get_execution_options()[WRITES]:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
    else:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
