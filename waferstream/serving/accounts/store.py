"""Keys and answers in a file of SQLite, which survive any end of the service.

Every answer is a row from before its first token is computed, so that none is lost or counted
twice. No text of a request is here.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from waferstream.core.errors import ConfigError
from waferstream.core.serving import Tier, Usage
from waferstream.serving.accounts.keys import Key, RateLimits

BUSY_S = 0.5
"""How long a statement waits for another process that writes."""

_VERSION = 1

_LOG_PAGES = 10_000
"""Of the log, before it is moved to the file in the midst of work: that waits for the disk."""

_SCHEMA = (
    """CREATE TABLE keys (
        name TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, created_s REAL NOT NULL,
        limits TEXT NOT NULL, reserved_tokens_per_s INTEGER NOT NULL, paid_nanodollars INTEGER,
        revoked_s REAL
    ) STRICT""",
    """CREATE TABLE answers (
        name TEXT PRIMARY KEY, key TEXT NOT NULL REFERENCES keys, model TEXT NOT NULL,
        tier TEXT NOT NULL, began_s REAL NOT NULL, is_open INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL, nanodollars INTEGER NOT NULL
    ) STRICT""",
    "CREATE INDEX answers_of_key ON answers (key, began_s)",
    f"PRAGMA user_version = {_VERSION}",
)

_COLUMNS = "name, digest, created_s, limits, reserved_tokens_per_s, paid_nanodollars, revoked_s"

_SUMS = """
SELECT key, model, date(began_s, 'unixepoch') AS day, count(*), sum(prompt_tokens),
    sum(cached_tokens), sum(completion_tokens), sum(nanodollars)
FROM answers WHERE key = coalesce(?, key) GROUP BY key, model, day ORDER BY key, model, day
"""


@dataclass(frozen=True)
class AnswerRow:
    """An answer of a key, and what it costs."""

    name: str
    key: str
    model: str
    tier: Tier
    began_s: float
    usage: Usage
    nanodollars: int


@dataclass(frozen=True)
class DayUsage:
    """What a key has used of a model on a day (UTC)."""

    key: str
    model: str
    day: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    nanodollars: int


class Store:
    """The file, for one thread at a time.

    Args:
        file: It is made if need be, for its user alone.

    Raises:
        ConfigError: It is no file of accounts, of another version, or cannot be opened.

    Methods that cannot read or write raise sqlite3.Error, and leave all as it was.
    """

    def __init__(self, file: Path) -> None:
        with suppress(FileExistsError):  # closing one that is in use would end its locks
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._file, self._inode = file, file.stat().st_ino
        try:
            self._connection = sqlite3.connect(file, timeout=BUSY_S, check_same_thread=False)
            with ExitStack() as stack:
                stack.callback(self._connection.close)
                self._prepare(file)
                stack.pop_all()
        except sqlite3.Error as error:
            raise not_open(file, error) from error

    def _prepare(self, file: Path) -> None:
        """Make the tables of a new file; check an old one."""
        try:
            if self._pragma("user_version") != _VERSION:
                self._make(file)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            raise _foreign(file, str(error)) from error
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        self._seen: int | None = None

    def _make(self, file: Path) -> None:
        """Make the tables in one transaction, unless another process does meanwhile."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            version = self._pragma("user_version")
            if version == _VERSION:
                return
            if version or self._connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
                raise _foreign(file, f"version {version}")
            for statement in _SCHEMA:
                self._connection.execute(statement)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._connection.close()

    def changed_keys(self) -> list[Key] | None:
        """Return all keys if another process has written since the last call, else None."""
        version = self._pragma("data_version")
        if version == self._seen:
            return None
        keys = self.known_keys()
        self._seen = version
        return keys

    def known_keys(self) -> list[Key]:
        """Return all keys, the oldest first."""
        rows = self._connection.execute(f"SELECT {_COLUMNS} FROM keys ORDER BY created_s, name")
        return [
            Key(name, digest, created_s, RateLimits(**json.loads(limits)), *rest)
            for name, digest, created_s, limits, *rest in rows
        ]

    def add(self, key: Key) -> bool:
        """Add a key; return whether its name was free."""
        values = (*asdict(key).values(),)
        limits = json.dumps(asdict(key.limits))
        with self._connection:
            made = self._connection.execute(
                f"INSERT OR IGNORE INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*values[:3], limits, *values[4:]),
            )
        return made.rowcount == 1

    def revoke(self, name: str, now_s: float) -> bool:
        """Revoke a key, for ever; return whether it exists."""
        statement = "UPDATE keys SET revoked_s = coalesce(revoked_s, ?) WHERE name = ?"
        return self._changes_key(statement, now_s, name)

    def pay(self, name: str, nanodollars: int) -> bool:
        """Add to what has been paid for a key in advance; return whether it exists."""
        statement = (
            "UPDATE keys SET paid_nanodollars = coalesce(paid_nanodollars, 0) + ? WHERE name = ?"
        )
        return self._changes_key(statement, nanodollars, name)

    def write(
        self, ended: Iterable[AnswerRow], begun: Iterable[AnswerRow], void: Iterable[str]
    ) -> None:
        """Write in one transaction what answers have become; all of it or nothing.

        Args:
            ended: Answers with what they used; those that are written already stay as they are.
            begun: Answers that begin.
            void: Names of answers that did not begin.
        """
        self._check_there()
        with self._connection:
            self._connection.executemany(
                "INSERT INTO answers VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?, ?)", map(_values, begun)
            )
            self._connection.executemany(
                "UPDATE answers SET is_open = 0, prompt_tokens = ?, cached_tokens = ?,"
                " completion_tokens = ?, nanodollars = ? WHERE name = ? AND is_open",
                [(*asdict(row.usage).values(), row.nanodollars, row.name) for row in ended],
            )
            self._connection.executemany(
                "DELETE FROM answers WHERE name = ?", [(name,) for name in void]
            )

    def tidy(self) -> None:
        """Move the log to the file, as far as nobody reads it: to be called in idle times."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def end_interrupted(self) -> int:
        """End the answers that a service which was killed has left; return their number.

        They cost what they would have with no token: their prompt.
        """
        with self._connection:
            return self._connection.execute("UPDATE answers SET is_open = 0 WHERE is_open").rowcount

    def rows_since(self, began_s: float) -> list[AnswerRow]:
        """Return the answers from a time on, as they began."""
        rows = self._connection.execute(
            "SELECT name, key, model, tier, began_s, prompt_tokens, cached_tokens,"
            " completion_tokens, nanodollars FROM answers WHERE began_s >= ? ORDER BY began_s",
            (began_s,),
        )
        return [
            AnswerRow(name, key, model, tier, at_s, Usage(*tokens), nanodollars)
            for name, key, model, tier, at_s, *tokens, nanodollars in rows
        ]

    def spent(self) -> dict[str, int]:
        """Return the nanodollars that every key has spent."""
        return dict(
            self._connection.execute("SELECT key, sum(nanodollars) FROM answers GROUP BY key")
        )

    def usage(self, key: str | None = None) -> list[DayUsage]:
        """Return what was used, by key, model and day; of one key, or of all."""
        return [DayUsage(*row) for row in self._connection.execute(_SUMS, (key,))]

    def _changes_key(self, statement: str, *values: object) -> bool:
        with self._connection:
            return self._connection.execute(statement, values).rowcount == 1

    def _check_there(self) -> None:
        """Raise sqlite3.Error if the file was removed, where SQLite would write on unseen."""
        try:
            is_there = self._file.stat().st_ino == self._inode
        except OSError:
            is_there = False
        if not is_there:
            raise sqlite3.OperationalError("the file was removed or replaced")

    def _pragma(self, name: str) -> int:
        (value,) = self._connection.execute(f"PRAGMA {name}").fetchone()
        return int(value)


def _values(row: AnswerRow) -> Sequence[object]:
    usage = asdict(row.usage).values()
    return (row.name, row.key, row.model, row.tier, row.began_s, *usage, row.nanodollars)


def not_open(file: Path, error: sqlite3.Error) -> ConfigError:
    """Return the error of a file that cannot be read or written."""
    return ConfigError(
        "the accounts must be readable and writable",
        code="accounts-not-open",
        where=str(file),
        rule=str(error),
        remedy="look at the disk, and at who locks the file",
    )


def _foreign(file: Path, rule: str) -> ConfigError:
    return ConfigError(
        "--accounts must name a file of accounts, or a new one",
        code="not-accounts",
        where=str(file),
        rule=rule,
        remedy="name another file",
    )
