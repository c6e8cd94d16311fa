"""A store in a database, which threads of many processes may use at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, func, select

from waferstream.management.store import tables
from waferstream.management.store.changes import Changes
from waferstream.management.store.databases import WAIT_S
from waferstream.management.store.memory import Memory
from waferstream.management.store.transactions import place_of, transaction, unavailable
from waferstream.management.store.views import Views

_NEWEST = select(func.max(tables.events.c.number))


class Store:
    """A store in a database, which any number of processes may open at once."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._memory = Memory()
        self._turn = threading.Lock()
        """Of the threads of this process, which so need not poll the database for theirs."""

    @contextmanager
    def change(self) -> Iterator[Changes]:
        """Enter a change; what it has written is gone if the block raises.

        Raises:
            ApplianceServiceInterrupted: ``store-unavailable``: the disk is full, or the database
                does not answer.
        """
        if not self._turn.acquire(timeout=WAIT_S):
            reason = f"another thread has written for {WAIT_S:.0f} s"
            raise unavailable(place_of(self._engine), reason)
        try:
            with transaction(self._engine, writes=True) as connection:
                yield Changes(connection, self._memory)
        finally:
            self._turn.release()

    @contextmanager
    def reading(self) -> Iterator[Views]:
        """Enter a block that sees the store at one moment and writes nothing."""
        with transaction(self._engine, writes=False) as connection:
            yield Views(connection, self._memory)

    def newest_event(self) -> int:
        """Return the number of the newest event, at the cost of a single row."""
        with transaction(self._engine, writes=False) as connection:
            return connection.scalar(_NEWEST) or 0

    def close(self) -> None:
        """Give back what the store has opened."""
        self._engine.dispose()
