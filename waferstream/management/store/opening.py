"""Opening a store: by the path of a file or the URL of a server, with tables of this version."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, insert, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError

from waferstream.core.errors import ConfigError
from waferstream.management.store import tables
from waferstream.management.store.databases import postgres_engine, sqlite_engine
from waferstream.management.store.store import Store
from waferstream.management.store.transactions import place_of, transaction, unavailable

_SERVER = "postgresql://USER@HOST/DATABASE"


def open_store(place: str | Path) -> Store:
    """Open a store, and make it or bring it up to date if need be.

    Args:
        place: The path of a file, or the URL of a PostgreSQL server.

    Raises:
        ConfigError: ``store-too-new``: a later release has written it. ``store-url``: the URL
            names no server that can be used.
        ApplianceServiceInterrupted: ``store-unavailable``: it cannot be reached or written.
    """
    engine = _server(str(place)) if "://" in str(place) else _file(Path(place))
    try:
        with transaction(engine, writes=False) as connection:
            version = _version(connection)
        if version != tables.VERSION:
            with transaction(engine, writes=True) as connection:
                _bring_up_to_date(connection)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


def _file(path: Path) -> Engine:
    try:
        return sqlite_engine(path)
    except (OSError, DBAPIError) as error:
        raise unavailable(str(path), str(error)) from error


def _server(text: str) -> Engine:
    kind = text.partition(":")[0]
    try:
        url = make_url(text)
        if url.get_backend_name() != "postgresql":
            raise _unusable(kind, _SERVER)
        return postgres_engine(url)
    except (ArgumentError, ValueError) as error:
        raise _unusable(kind, _SERVER) from error
    except ImportError as error:
        raise _unusable(kind, "pip install 'waferstream[management]'") from error


def _unusable(kind: str, remedy: str) -> ConfigError:
    return ConfigError(
        "the store cannot be reached by this URL",
        code="store-url",
        value=kind,
        rule="a path, or the URL of a PostgreSQL server and its driver",
        remedy=remedy,
    )


def _version(connection: Connection) -> str | None:
    """Return the version of a store, None if it is empty."""
    if not inspect(connection).has_table(tables.versions.name):
        return None
    return connection.scalar(select(tables.versions.c.version_num))


def _bring_up_to_date(connection: Connection) -> None:
    """Make the tables of a new store, or change those of an earlier release."""
    version = _version(connection)
    if version is None:
        tables.metadata.create_all(connection)
        tables.versions.create(connection)
        connection.execute(insert(tables.versions).values(version_num=tables.VERSION))
    elif version > tables.VERSION:
        raise _too_new(connection.engine, version)
    elif version < tables.VERSION:  # else another process was first
        from waferstream.management.store.migrations import upgrade  # noqa: PLC0415

        upgrade(connection)


def _too_new(engine: Engine, version: str) -> ConfigError:
    return ConfigError(
        "a later release has written the store",
        code="store-too-new",
        where=place_of(engine),
        value=version,
        rule=f"its version is at most {tables.VERSION}",
        remedy="install that release, or choose another store",
    )
