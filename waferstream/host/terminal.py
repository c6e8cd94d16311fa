"""What a terminal shows while a program runs: log lines above bars, and a spinner."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from itertools import cycle
from typing import TextIO, cast

from tqdm import tqdm
from tqdm.contrib import DummyTqdmFile
from tqdm.contrib.logging import logging_redirect_tqdm

log = logging.getLogger("waferstream")

_FRAMES = "|/-\\"
_FRAME_S = 0.15


class TerminalHandler(logging.Handler):
    """Handler that prints log lines on stdout, above the bars that are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(self.format(record), file=sys.stdout)
        sys.stdout.flush()


def shows_bars() -> bool:
    """Return whether stderr is a terminal, and log lines know to go above what is shown there."""
    knows = any(isinstance(handler, TerminalHandler) for handler in log.handlers)
    return knows and sys.stderr.isatty()


@contextmanager
def printing_above() -> Iterator[None]:
    """Let what the block prints, and logs to the root logger, go above the bars of a terminal.

    Output that goes elsewhere than to the terminal stays as it is.
    """
    with ExitStack() as stack:
        consoles = (sys.stdout, sys.stderr)
        if any(getattr(each, "stream", None) in consoles for each in logging.root.handlers):
            stack.enter_context(logging_redirect_tqdm())
        if sys.stdout.isatty():
            stack.enter_context(redirect_stdout(cast("TextIO", DummyTqdmFile(sys.stderr))))
        yield


def line_width() -> int | None:
    """Return the characters of a line on the terminal; None if stdout is a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@contextmanager
def repeated(function: Callable[[], object], period_s: float) -> Iterator[None]:
    """Call a function again and again, in a thread, while the block runs."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(period_s):
            function()

    thread = threading.Thread(target=repeat, name="terminal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def spinning(text: str) -> Iterator[None]:
    """Show a text, a spinner and the time so far while the block runs.

    They are on stderr, and only if it is a terminal and log lines know to go above them.
    """
    if not shows_bars():
        yield
        return
    form, frames = "{desc} {elapsed}", cycle(_FRAMES)
    first = f"{next(frames)} {text}"
    with (
        tqdm(desc=first, bar_format=form, leave=False, dynamic_ncols=True) as line,
        repeated(lambda: line.set_description_str(f"{next(frames)} {text}"), _FRAME_S),
    ):
        yield
