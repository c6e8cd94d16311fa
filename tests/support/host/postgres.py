"""A PostgreSQL server of a test: in a folder of its own, under its own user, without a port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

_LIMIT_S = 60.0


class PostgresServer:
    """A server, which tests stop and start again."""

    def __init__(self, programs: Path, folder: Path, who: Mapping[str, str]) -> None:
        self._programs, self._folder, self._who = programs, folder, who
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def initialize(self) -> None:
        """Make the files of the server."""
        words = ["initdb", "-D", str(self._data), "-U", "tests", "-A", "trust", "-N"]
        subprocess.run(
            [self._programs / words[0], *words[1:]],
            check=True,
            capture_output=True,
            cwd=self._folder,
            timeout=_LIMIT_S,
            **self._who,  # type: ignore[call-overload]
        )

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        words = ["-D", str(self._data), "-k", str(self._folder), "-c", "listen_addresses="]
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", *words, "-c", "fsync=off"],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **self._who,  # type: ignore[call-overload]
            )
        limit_s = time.monotonic() + _LIMIT_S
        while not self._answers():
            assert time.monotonic() < limit_s, (self._folder / "log").read_text()
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop the server at once, with all connections."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_LIMIT_S)
            self._process = None

    def new_database(self) -> str:
        """Return the URL of an empty database."""
        self._databases += 1
        name = f"test{self._databases}"
        with psycopg.connect(self._words("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return f"postgresql://tests@/{name}?host={self._folder}"

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _words(self, database: str) -> str:
        return f"host={self._folder} user=tests dbname={database}"

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._words("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Enter a block with a server; the test is skipped where none is installed."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not installed:
        pytest.skip("PostgreSQL is not installed")
    with tempfile.TemporaryDirectory(prefix="waferstream-postgres-") as name:
        server = PostgresServer(installed[-1].parent, Path(name), _user_of(Path(name)))
        server.initialize()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _user_of(folder: Path) -> Mapping[str, str]:
    """Return the user of the server, who gets the folder: PostgreSQL refuses root."""
    if os.getuid():
        return {}
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("there is no user postgres")
    shutil.chown(folder, "postgres", "postgres")
    return {"user": "postgres", "group": "postgres"}
