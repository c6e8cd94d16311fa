"""Ctrl-C (SIGINT), SIGTERM and SIGHUP: raised at once, after a block, or after a checkpoint.

A signal that is ignored when a block begins (SIGINT by a job in the background, SIGHUP under
nohup) stays ignored. A process that a signal has ended dies of it in the end, when everything is
cleaned up: only then a shell leaves the loop or script around it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

_ECHO_S = 0.5
"""Within this time, equal signals have one cause: timeout(1) signals a process and its group."""

_AGAIN_S = 0.01
"""After this time a destructor or a callback has ended."""

_ACTION_BYTES = 256
"""What sigaction(2) describes a handler in: 152 bytes on x86-64, at most as many elsewhere."""

_Handler = Callable[[int, FrameType | None], Any]
_Found = _Handler | int | None
"""What signal.signal returns: a function, SIG_DFL or SIG_IGN, or None."""


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM; what ends it is the same as for Ctrl-C."""


class HungUp(KeyboardInterrupt):
    """The process got SIGHUP: its terminal was closed, or the connection to it was lost."""


_KINDS: Mapping[signal.Signals, type[KeyboardInterrupt]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
    signal.SIGHUP: HungUp,
}

_WORDS = {signal.SIGINT: "Interrupted", signal.SIGTERM: "Terminated", signal.SIGHUP: "Hung up"}


def interrupt(number: int, _frame: FrameType | None) -> None:
    """Raise the exception of a signal."""
    raise _KINDS[signal.Signals(number)]


def exit_code(error: BaseException) -> int:
    """Return the exit code of a process that a signal has ended, 128 and its number."""
    return 128 + _number_of(error)


class Death:
    """The end of this process by a signal, when everything else that runs at its exit has run.

    To be made before others register what runs at the exit: the first one of them runs last.
    """

    def __init__(self) -> None:
        self._number: signal.Signals | None = None
        atexit.register(self._die)

    def of(self, error: BaseException) -> int:
        """Let the process die of a signal; return the exit code for where it cannot."""
        self._number = _number_of(error)
        return exit_code(error)

    def _die(self) -> None:
        if self._number is not None:
            with suppress(OSError, ValueError):  # nobody reads it, or it was closed
                sys.stdout.flush()
            _die_of(self._number)


def ending(error: BaseException) -> str:
    """Return the word for how a signal has ended a run."""
    return _WORDS[_number_of(error)]


def _number_of(error: BaseException) -> signal.Signals:
    return next((number for number, kind in _KINDS.items() if kind is type(error)), signal.SIGINT)


@contextmanager
def raising() -> Iterator[None]:
    """Raise every signal in the block, but those that repeat what another one has said."""
    arrivals = _Arrivals()

    def raise_new(number: int, frame: FrameType | None) -> None:
        if _comes_again(number) or not arrivals.is_echo(number):
            interrupt(number, frame)

    with _raising_again(), _handled_by(raise_new):
        yield


@contextmanager
def deferred(seconds: float | None = None) -> Iterator[None]:
    """Handle signals after the block, which must not be cut in two, with the previous handlers.

    Handlers that the block itself sets are dropped. With ``seconds`` the process ends if the block
    takes longer than that after a signal. In another thread than the first one no signal waits, and
    those handlers are dropped that were set without Python, as Ray does.
    """
    if threading.current_thread() is not threading.main_thread():
        with _dropping_handlers_of_c():
            yield
        return
    arrived: list[int] = []

    with ExitStack() as timers:

        def note(number: int, _frame: FrameType | None) -> None:
            arrived.append(number)
            if seconds is not None and len(arrived) == 1:
                timers.callback(_started(seconds, lambda: _end_process(number)).cancel)

        with _handled_by(note):
            yield
    if arrived:
        signal.raise_signal(arrived[0])


@contextmanager
def ended_within(seconds: float) -> Iterator[None]:
    """Raise the first signal in the block, and end the process if that does not end it in time.

    What hangs while the block is left (a process that never answers, a disk) cannot keep the
    process alive then: it dies of the signal. Later signals change nothing, so that the block
    leaves nothing behind, however often Ctrl-C is pressed.
    """
    arrived: dict[int, threading.Timer] = {}

    def end(number: int, frame: FrameType | None) -> None:
        is_first = not arrived
        if is_first:
            arrived[number] = _started(seconds, lambda: _end_process(number))
        if _comes_again(number) or is_first:
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


def end_quietly(seconds: float) -> None:
    """Note that the process is about to end by itself: signals no longer interrupt it.

    The first one gives it so much time for that.
    """
    arrived: list[threading.Timer] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if not arrived:
            arrived.append(_started(seconds, lambda: _end_process(number)))

    _handle(note)


class Grace:
    """Time for the current steps to end when a signal arrives, so that they can be saved.

    The first signal after ``begin`` sets ``is_asked``; a second one, or the end of the time, goes
    to the previous handlers, as any signal does before ``begin``.

    Args:
        seconds: How long the work may take from the first signal on.
        note: Called at the first signal, in another thread: the first one may be printing.
    """

    def __init__(self, seconds: float, note: Callable[[], None]) -> None:
        self._seconds = seconds
        self._note = note
        self._number: int | None = None
        self._has_begun = False
        self._is_over = False
        self._arrivals = _Arrivals()
        self._before: Mapping[int, _Found] = {}
        self._timer: threading.Timer | None = None
        self._noting: threading.Thread | None = None

    def begin(self) -> None:
        """Note that there is something to save from now on. Idempotent."""
        self._has_begun = True

    @property
    def is_asked(self) -> bool:
        """Whether a signal has arrived; its note is out by then, before anything is saved."""
        if self._noting is None:
            return False
        self._noting.join()
        return True

    def end(self) -> None:
        """Give the signal, if one has arrived, to the handler outside of ``given``; raise it."""
        if self._number is not None:
            _pass_on(self._before, self._number, None)
            interrupt(self._number, None)  # the handler has raised it before, in vain

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
        is_asked = self._number is not None
        if self._is_over or not self._has_begun or number in _swallowed:
            _pass_on(self._before, number, frame)
        elif self._arrivals.is_echo(number) or (is_asked and number == signal.SIGHUP):
            return  # a terminal that closes does not take the time of a step that is to be saved
        elif is_asked:
            _pass_on(self._before, number, frame)
        else:
            self._number = number
            self._timer = _started(self._seconds, self._be_over)
            self._noting = threading.Thread(target=self._note, daemon=True)
            self._noting.start()

    def _be_over(self) -> None:
        self._is_over = True
        assert self._number is not None, "its time has begun"
        os.kill(os.getpid(), self._number)


class _Arrivals:
    """The signals of a block, some of which repeat what another one has said."""

    def __init__(self) -> None:
        self._times: dict[int, float] = {}

    def is_echo(self, number: int) -> bool:
        """Note a signal; return whether it says nothing new.

        The kernel and each shell send a SIGHUP of their own when one terminal closes.
        """
        now = time.monotonic()
        if number not in self._times:
            self._times[number] = now
            return False
        return number == signal.SIGHUP or now - self._times[number] < _ECHO_S


_swallowed: set[int] = set()
"""Signals whose exception nobody has got yet."""


def _comes_again(number: int) -> bool:
    """Return whether the exception of a signal was swallowed, and forget that."""
    is_known = number in _swallowed
    _swallowed.discard(number)
    return is_known


@contextmanager
def _raising_again() -> Iterator[None]:
    """Send a signal of the block once more where Python swallows its exception.

    A destructor, and a callback of a weak reference, as imports have, can raise nothing.
    """
    before = sys.unraisablehook

    def send_again(found: Any) -> None:
        if not isinstance(found.exc_value, KeyboardInterrupt):
            before(found)
            return
        number = _number_of(found.exc_value)
        _swallowed.add(number)
        _started(_AGAIN_S, lambda: os.kill(os.getpid(), number))

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextmanager
def _dropping_handlers_of_c() -> Iterator[None]:
    """Put back what the kernel calls for each signal, unless Python has changed that meanwhile."""
    sigaction = ctypes.CDLL(None).sigaction
    before = {number: signal.getsignal(number) for number in _KINDS}
    actions = {number: ctypes.create_string_buffer(_ACTION_BYTES) for number in _KINDS}
    for number, action in actions.items():
        sigaction(int(number), None, action)
    try:
        yield
    finally:
        for number, action in actions.items():
            if signal.getsignal(number) == before[number]:
                sigaction(int(number), action, None)


@contextmanager
def _handled_by(handler: _Handler) -> Iterator[Mapping[int, _Found]]:
    """Handle signals by a function, and give the block the previous handlers.

    Without effect on another thread than the first one.
    """
    before = _handle(handler)
    try:
        yield before
    finally:
        for number, old in before.items():
            # None: it was not set from Python, and cannot be set from there.
            signal.signal(number, signal.SIG_DFL if old is None else old)


def _handle(handler: _Handler) -> Mapping[int, _Found]:
    """Handle the signals that are not ignored by a function; return their previous handlers."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    heard: list[int] = [
        number for number in _KINDS if signal.getsignal(number) is not signal.SIG_IGN
    ]
    return {number: signal.signal(number, handler) for number in heard}


def _pass_on(handlers: Mapping[int, _Found], number: int, frame: FrameType | None) -> None:
    """Call the handler of a signal; raise the signal's exception if that is no function."""
    handler = handlers.get(number)
    if callable(handler):
        handler(number, frame)
    else:
        interrupt(number, frame)


def _started(seconds: float, work: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()
    return timer


def _end_process(number: int) -> None:
    """End this process without another line of its own; what it started notices its end."""
    with suppress(OSError):  # the terminal may have gone
        print("\nSomething did not end in time: the process ends without it.", file=sys.stderr)
        sys.stderr.flush()
    _die_of(number)
    os._exit(128 + number)


def _die_of(number: int) -> None:
    """End this process by a signal, as if it had never handled it.

    It lives on where the kernel drops such a signal: as the first process of a container
    (pid_namespaces(7)).
    """
    # None is SIG_DFL. Python's own function works in the first thread only.
    ctypes.CDLL(None).signal(int(number), None)
    os.kill(os.getpid(), number)
