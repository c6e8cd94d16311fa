"""Standard output, standard error and log files that may not be writable until the program ends.

A reader goes away (``| head``), a terminal is closed, the disk of a log is full.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

log = logging.getLogger("waferstream")

_OUT, _ERR = "standard output", "standard error"

_READER_GONE = (errno.EPIPE, errno.EIO)
"""Of a pipe that was closed; of a terminal that was closed."""

LINE_FORMAT = "%(asctime)s %(levelname)s: %(message)s"
"""The form of a line of the log of a run or of a job."""


class _Stream:
    """A stream that leads nowhere once it could not be written.

    Args:
        bare: The stream.
        failed: Receives the error; may raise.
    """

    def __init__(self, bare: TextIO, failed: Callable[[OSError], None]) -> None:
        self.bare = bare
        self._failed = failed

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        try:
            self.bare.write(text)
        except OSError as error:
            self._fail(error)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        try:
            self.bare.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.bare.fileno())  # also for what is still buffered
        os.close(nowhere)
        self._failed(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bare, name)


@contextmanager
def ended_by_reader(code: int) -> Iterator[None]:
    """End the program with an exit code when nobody reads what the block prints any more.

    Raises:
        SystemExit: The reader of standard output has gone.
        OSError: Standard output cannot be written for another reason.
    """

    def end(error: OSError) -> None:
        if error.errno in _READER_GONE:
            raise SystemExit(code) from error
        raise _named(error)

    with _replaced(end, lambda _: None):
        yield


@contextmanager
def outlasting_readers() -> Iterator[None]:
    """Go on in the block when what it prints cannot be written any more.

    Raises:
        OSError: After the block, if standard output could not be written though it had a reader.
    """
    failed: dict[str, OSError] = {}

    def go_on(name: str, error: OSError) -> None:
        failed[name] = error
        text = f"{name}: {error.strerror}. The program goes on; what it prints there is lost."
        log.warning("%s", text)
        if name == _OUT:
            print(f"Warning: {text}", file=sys.stderr, flush=True)

    with _replaced(partial(go_on, _OUT), partial(go_on, _ERR)):
        yield
    if _OUT in failed and failed[_OUT].errno not in _READER_GONE:
        raise _named(failed[_OUT])


@contextmanager
def _replaced(
    out_failed: Callable[[OSError], None], err_failed: Callable[[OSError], None]
) -> Iterator[None]:
    """Tell the errors of both streams in the block, at the latest when it ends."""
    out = _Stream(_bare(sys.stdout), out_failed)
    err = _Stream(_bare(sys.stderr), err_failed)
    with redirect_stdout(cast("TextIO", out)), redirect_stderr(cast("TextIO", err)):
        try:
            yield
        finally:
            err.flush()
            out.flush()


def _bare(stream: TextIO) -> TextIO:
    return stream.bare if isinstance(stream, _Stream) else stream


def _named(error: OSError) -> OSError:
    error.filename = _OUT
    return error


class LogFile(logging.Handler):
    """Handler that appends lines to a file, which is open only while a line is written.

    A line that cannot be written is lost; standard error says so, once.

    Args:
        path: The file.
        form: The form of a line, as of ``logging.Formatter``.
        opener: What opens the file, as of ``open``.
    """

    def __init__(
        self, path: Path, form: str, opener: Callable[[str, int], int] | None = None
    ) -> None:
        super().__init__()
        self._path = path
        self._opener = opener
        self._has_failed = False
        self.setFormatter(logging.Formatter(form))

    def emit(self, record: logging.LogRecord) -> None:
        line = self.format(record) + "\n"
        try:
            with open(
                self._path, "a", encoding="utf-8", errors="backslashreplace", opener=self._opener
            ) as file:
                file.write(line)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                reason = error.strerror or error
                print(f"Warning: {self._path}: {reason}. The run goes on.", file=sys.stderr)
