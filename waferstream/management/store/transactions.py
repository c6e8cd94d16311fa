"""Transactions of a store: who writes in one, and what errors of the database mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from waferstream.core.errors import ApplianceServiceInterrupted, ConfigError

WRITES = "waferstream_writes"
"""Option of a connection: whether its transactions write, and so exclude others that do."""


@contextmanager
def transaction(engine: Engine, *, writes: bool) -> Iterator[Connection]:
    """Enter a transaction, of which nothing is kept if the block raises.

    Raises:
        ApplianceServiceInterrupted: ``store-unavailable``.
        ConfigError: ``name-taken``: a row with this key is there.
    """
    try:
        with (
            engine.connect() as connection,
            connection.execution_options(**{WRITES: writes}).begin(),
        ):
            yield connection
    except IntegrityError as error:
        raise ConfigError(
            "the name is taken",
            code="name-taken",
            where=place_of(engine),
            rule="names of jobs and tokens are unique",
        ) from error
    except DBAPIError as error:
        raise unavailable(place_of(engine), str(error.orig)) from error


def unavailable(place: str, reason: str) -> ApplianceServiceInterrupted:
    """Return the error of a store that cannot be read or written now."""
    return ApplianceServiceInterrupted(
        "the store of the management does not answer",
        code="store-unavailable",
        where=place,
        value=reason.strip(),
        rule="its disk has room, its folder can be written, and its database runs",
        remedy="see to that and try again; nothing of this change was kept",
    )


def place_of(engine: Engine) -> str:
    """Return where a database is, without its password."""
    return engine.url.render_as_string(hide_password=True)
