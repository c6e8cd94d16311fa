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

from waferstream.host.words import Words, in_words

log = logging.getLogger("waferstream")

_FRAMES = "|/-\\"
_FRAME_S = 0.15

_LOOK_S = 0.2


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
        _print_above(self.format(record))


def _print_above(line: str) -> None:
    """Print a line on stdout, above the bars if there were any, and flush it."""
    if (bars := sys.modules.get("tqdm")) is not None:
        bars.tqdm.write(line, file=sys.stdout)
    else:
        print(line)
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
            from tqdm.contrib.logging import logging_redirect_tqdm  # noqa: PLC0415

            stack.enter_context(logging_redirect_tqdm())
        if sys.stdout.isatty():
            from tqdm.contrib import DummyTqdmFile  # noqa: PLC0415

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
    from tqdm import tqdm  # noqa: PLC0415  (of the extra 'train')

    form, frames = "{desc} {elapsed}", cycle(_FRAMES)
    first = f"{next(frames)} {text}"
    with (
        tqdm(desc=first, bar_format=form, leave=False, dynamic_ncols=True) as line,
        repeated(lambda: line.set_description_str(f"{next(frames)} {text}"), _FRAME_S),
    ):
        yield


class ProgressBar:
    """Progress bar on stderr if that is a terminal; otherwise no bar, so that logs stay clean.

    The bar follows the steps that ``look`` tells, also while nobody calls it.

    Args:
        description: What is in progress.
        first: The first step.
        last: The last step.
        look: Returns the newest step that has begun; called in a thread.
        unit: What a step is.
    """

    def __init__(
        self,
        description: str,
        first: int,
        last: int,
        look: Callable[[], int],
        unit: str = "step",
    ) -> None:
        from tqdm import tqdm  # noqa: PLC0415

        self._bar = tqdm(
            desc=description,
            total=last - first + 1,
            unit=unit,
            leave=False,
            dynamic_ncols=True,
            disable=None,
        )
        self._first, self._last, self._look = first, last, look
        self._changing = threading.Lock()
        self._has_begun = False
        self._following = ExitStack()
        if not self._bar.disable:
            self._following.enter_context(printing_above())
            self._following.enter_context(repeated(self.follow, _LOOK_S))

    @property
    def done(self) -> int:
        """The number of steps that the bar shows as done."""
        return int(self._bar.n)

    def follow(self) -> None:
        """Advance to the step before the newest one that has begun."""
        newest = self._look()
        if newest < self._first:
            return
        with self._changing:
            if not self._has_begun:
                self._has_begun = True
                self._bar.unpause()  # the rate counts from here
            self._bar.update(max(newest - self._first - self._bar.n, 0))

    def reach(self, step: int) -> None:
        """Show that a step, and all before, are done; later ones run again."""
        if not self._bar.disable:
            with self._changing:
                self._bar.update(step - self._first + 1 - self._bar.n)

    def write(self, line: str) -> None:
        """Print a line on stdout, above the bar, and flush it."""
        self._bar.write(line)
        sys.stdout.flush()

    def close(self) -> None:
        """Remove the bar. Idempotent."""
        self._following.close()
        self._bar.close()
