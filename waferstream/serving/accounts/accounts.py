"""The accounts of a running service: its keys, what they have used, and the file of both."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Self

from waferstream.core.errors import ConfigError, RequestRefused
from waferstream.core.secrets import digest_of
from waferstream.host.locks import locked
from waferstream.serving.accounts.account import Account
from waferstream.serving.accounts.buckets import DAY_S
from waferstream.serving.accounts.callers import KeyCaller
from waferstream.serving.accounts.keys import Key
from waferstream.serving.accounts.prices import Price
from waferstream.serving.accounts.store import Store, not_open
from waferstream.serving.accounts.writer import Writer

log = logging.getLogger("waferstream")


class Accounts:
    """The keys of a service; a context, which holds the file.

    Args:
        file: The file of accounts.
        price: That of the model that is served.
        clock: Returns the time in seconds since 1970.

    Raises:
        ConfigError: It is no file of accounts, cannot be written, or another service has it.
    """

    def __init__(self, file: Path, price: Price, clock: Callable[[], float] = time.time) -> None:
        self._file, self.price, self._clock = file, price, clock
        self._callers: dict[str, KeyCaller] = {}
        with ExitStack() as stack:
            stack.enter_context(_claimed(file))
            store = stack.enter_context(closing(Store(file)))
            self._writer = Writer(store, self._keys_changed)
            try:
                self._load(store)
            except sqlite3.Error as error:
                raise not_open(file, error) from error
            self._writer.start()
            stack.callback(self._writer.close)
            self._held = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    async def caller(self, secret: str) -> KeyCaller:
        """Return the caller with a secret.

        Raises:
            RequestRefused: No key has it, the key is revoked, or the file cannot be read.
        """
        digest = digest_of(secret)
        if digest not in self._callers:
            await asyncio.wrap_future(self._writer.catch_up())  # it may be new
        if digest not in self._callers:
            raise _key_unknown()
        caller = self._callers[digest]
        caller.check()
        return caller

    def named(self, name: str) -> KeyCaller:
        """Return the caller with a name.

        Raises:
            RequestRefused: No key has it.
        """
        callers = list(self._callers.values())  # in one go: the writer may add one meanwhile
        found = [each for each in callers if each.name == name]
        if not found:
            raise _key_unknown()
        return found[0]

    def _load(self, store: Store) -> None:
        """Read the keys, and what they have used."""
        store.end_interrupted()
        now_s, spent = self._clock(), store.spent()
        rows = store.rows_since(now_s - DAY_S)
        for key in store.changed_keys() or []:
            of_key = [row for row in rows if row.key == key.name]
            self._add(Account(key, now_s, spent.get(key.name, 0), of_key))
        if not self._callers:
            log.warning("Nobody can ask yet: waferstream serve keys create NAME makes a key")

    def _keys_changed(self, keys: Sequence[Key]) -> None:
        """Take keys as another process has written them."""
        for key in keys:
            if key.digest in self._callers:
                self._callers[key.digest].change(key)
            else:
                self._add(Account(key, self._clock()))

    def _add(self, account: Account) -> None:
        self._callers[account.key.digest] = KeyCaller(
            account, self.price, self._writer, self._file, self._clock
        )


def _key_unknown() -> RequestRefused:
    return RequestRefused(
        "the key must be one of this service",
        code="key-unknown",
        remedy="waferstream serve keys create NAME makes one",
    )


@contextmanager
def _claimed(file: Path) -> Iterator[None]:
    """Hold a file of accounts: what a key may use is counted in one process."""
    lock = file.with_name(f".{file.name}.lock")
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(lock, 0))
        except TimeoutError as error:
            raise ConfigError(
                "one service at a time can use a file of accounts",
                code="accounts-in-use",
                where=str(file),
                value=error.strerror,
                rule="what a key may use is counted in one process",
                remedy="end the other service, or name another file",
            ) from error
        stack.callback(lock.unlink, missing_ok=True)
        yield
