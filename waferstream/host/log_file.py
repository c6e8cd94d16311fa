"""Log files whose lines can fail to be written without harm to who logs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

LINE_FORMAT = "%(asctime)s %(levelname)s: %(message)s"
"""The form of a line of the log of a run or of a job."""


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
