"""What a terminal shows while a program runs: log lines above bars, and a spinner."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from waferstream.host.words import Words, in_words

if TYPE_CHECKING:
    from waferstream.host.bars import Live

log = logging.getLogger("waferstream")


def log_to_terminal(level: str | int, words: Words = "plain") -> None:
    """Show log lines of a level and above in these words, each with its time."""
    handler = TerminalHandler()
    handler.addFilter(in_words(words))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s: %(message)s", "%H:%M:%S"))
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(level)


class TerminalHandler(logging.Handler):
    """Handler that prints log lines on stdout, above the bars that are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        print_line = print
        if (bars := sys.modules.get("tqdm")) is not None:  # of the user's program
            print_line = bars.tqdm.write
        print_line(self.format(record), file=sys.stdout)
        sys.stdout.flush()


def shows_bars() -> bool:
    """Return whether stderr is a terminal, and log lines know to go above what is shown there.

    A program that shows bars of its own needs no others.
    """
    knows = any(isinstance(handler, TerminalHandler) for handler in log.handlers)
    return knows and sys.stderr.isatty() and not _own_bars()


def _own_bars() -> bool:
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    return bool(getattr(tqdm, "_instances", ()))


def line_width() -> int | None:
    """Return the characters of a line on the terminal; None if stdout is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@contextmanager
def spinning(text: str) -> Iterator[None]:
    """Show a text, a spinner and the time so far while the block runs.

    They are on stderr, and only if it is a terminal and log lines know to go above them.
    """
    if not shows_bars():
        yield
        return
    from waferstream.host.bars import spinner  # noqa: PLC0415  (rich: slow)

    with spinner(text):
        yield


def progress_bar(description: str, first: int, last: int, look: Callable[[], int]) -> Live | None:
    """Return a bar on stderr, as of ``bar_of_steps``; None if that is no terminal."""
    if not sys.stderr.isatty():
        return None
    from waferstream.host.bars import bar_of_steps  # noqa: PLC0415  (rich: slow)

    return bar_of_steps(description, first, last, look)
