"""Ctrl-C (SIGINT) and SIGTERM: raised at once, after a block, or when a checkpoint is written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_Handler = Callable[[int, FrameType | None], Any]


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


class Grace:
    """Time for the current steps to end when a signal arrives, so that they can be saved.

    The first signal after ``begin`` sets ``is_asked``; a second one, or the end of the time,
    interrupts at once, as any signal does before.

    Args:
        seconds: How long the work may take from the first signal on.
        note: Called at the first signal.
    """

    def __init__(self, seconds: float, note: Callable[[], None]) -> None:
        self._seconds = seconds
        self._note = note
        self._number: int | None = None
        self._has_begun = False
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Note that there is something to save from now on. Idempotent."""
        self._has_begun = True

    @property
    def is_asked(self) -> bool:
        """Whether a signal has arrived."""
        return self._number is not None

    def end(self) -> None:
        """Raise the exception of the signal, if one has arrived."""
        if self._number is not None:
            interrupt(self._number, None)

    @contextmanager
    def given(self) -> Iterator[None]:
        """Give time to what runs in the block."""
        try:
            with _handled_by(self._take):
                yield
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._number is not None or not self._has_begun:
            interrupt(number, frame)
        self._number = number
        self._timer = threading.Timer(self._seconds, os.kill, (os.getpid(), number))
        self._timer.daemon = True
        self._timer.start()
        self._note()


@contextmanager
def _handled_by(handler: _Handler) -> Iterator[None]:
    """Handle signals by a function; without effect on another thread than the first one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            # None: it was not set from Python, and cannot be set from there.
            signal.signal(number, signal.SIG_DFL if old is None else old)
