"""A store in a database, which threads of many processes may use at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, func, select

from waferstream.management.store import tables
from waferstream.management.store.changes import SqlChanges
from waferstream.management.store.databases import WAIT_S
from waferstream.management.store.memory import Memory
from waferstream.management.store.transactions import place_of, transaction, unavailable
from waferstream.management.store.views import SqlViews

_NEWEST = select(func.max(tables.events.c.number))


class SqlStore:
    """A store over the connections of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._memory = Memory()
        self._turn = threading.Lock()
        """Of the threads of this process, which so need not poll the database for theirs."""

    @contextmanager
    def change(self) -> Iterator[SqlChanges]:
        if not self._turn.acquire(timeout=WAIT_S):
            reason = f"another thread has written for {WAIT_S:.0f} s"
            raise unavailable(place_of(self._engine), reason)
        try:
            with transaction(self._engine, writes=True) as connection:
                yield SqlChanges(connection, self._memory)
        finally:
            self._turn.release()

    @contextmanager
    def reading(self) -> Iterator[SqlViews]:
        with transaction(self._engine, writes=False) as connection:
            yield SqlViews(connection, self._memory)

    def newest_event(self) -> int:
        with transaction(self._engine, writes=False) as connection:
            return connection.scalar(_NEWEST) or 0

    def close(self) -> None:
        self._engine.dispose()
