"""Ctrl-C (SIGINT) and SIGTERM: raised at once, after a block, or when a checkpoint is written."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_Handler = Callable[[int, FrameType | None], Any]
_Found = _Handler | int | None
"""What signal.signal returns: a function, SIG_DFL or SIG_IGN, or None."""


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM; what ends it is the same as for Ctrl-C."""


def interrupt(number: int, _frame: FrameType | None) -> None:
    """Raise the exception of a signal."""
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


@contextmanager
def deferred() -> Iterator[None]:
    """Handle signals after the block, which must not be cut in two, with the handlers of before.

    Handlers that the block itself sets are dropped.
    """
    arrived: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    with _handled_by(note):
        yield
    if arrived:
        signal.raise_signal(arrived[0])


@contextmanager
def ended_within(seconds: float) -> Iterator[None]:
    """Raise signals in the block, and end the process if that does not end the block in time.

    What hangs while the block is left (a process that never answers, a disk) cannot keep the
    process alive then. The exit code is 128 and the number of the first signal.
    """
    arrived: dict[int, threading.Timer] = {}

    def end(number: int, frame: FrameType | None) -> None:
        if not arrived:
            arrived[number] = _started(seconds, lambda: _end_process(number))
        interrupt(number, frame)

    try:
        with _handled_by(end):
            yield
    except KeyboardInterrupt:
        for number in arrived:  # Ray, where it waits, raises the one of Ctrl-C for all
            interrupt(number, None)
        raise
    finally:
        for timer in arrived.values():
            timer.cancel()


class Grace:
    """Time for the current steps to end when a signal arrives, so that they can be saved.

    The first signal after ``begin`` sets ``is_asked``; a second one, or the end of the time, goes
    to the handlers of before, as any signal does before ``begin``.

    Args:
        seconds: How long the work may take from the first signal on.
        note: Called at the first signal.
    """

    def __init__(self, seconds: float, note: Callable[[], None]) -> None:
        self._seconds = seconds
        self._note = note
        self._number: int | None = None
        self._has_begun = False
        self._before: Mapping[int, _Found] = {}
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Note that there is something to save from now on. Idempotent."""
        self._has_begun = True

    @property
    def is_asked(self) -> bool:
        """Whether a signal has arrived."""
        return self._number is not None

    def end(self) -> None:
        """Give the signal, if one has arrived, to the handler outside of ``given``."""
        if self._number is not None:
            _pass_on(self._before, self._number, None)

    @contextmanager
    def given(self) -> Iterator[None]:
        """Give time to what runs in the block."""
        try:
            with _handled_by(self._take) as self._before:
                yield
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._number is not None or not self._has_begun:
            _pass_on(self._before, number, frame)
        self._number = number
        self._timer = _started(self._seconds, lambda: os.kill(os.getpid(), number))
        self._note()


@contextmanager
def _handled_by(handler: _Handler) -> Iterator[Mapping[int, _Found]]:
    """Handle signals by a function, and give the block the handlers of before.

    Without effect on another thread than the first one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield {}
        return
    before: dict[int, _Found] = {n: signal.signal(n, handler) for n in _SIGNALS}
    try:
        yield before
    finally:
        for number, old in before.items():
            # None: it was not set from Python, and cannot be set from there.
            signal.signal(number, signal.SIG_DFL if old is None else old)


def _pass_on(handlers: Mapping[int, _Found], number: int, frame: FrameType | None) -> None:
    """Call the handler of a signal; raise the signal's exception if that is no function."""
    handler = handlers.get(number)
    if callable(handler):
        handler(number, frame)
    interrupt(number, frame)


def _started(seconds: float, work: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()
    return timer


def _end_process(number: int) -> None:
    """End this process without another line of its own; what it started notices its end."""
    print("\nSomething did not end in time: the process ends without it.", file=sys.stderr)
    sys.stderr.flush()
    os._exit(128 + number)
