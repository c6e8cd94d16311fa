"""Signals are raised at once, after a block, or when the current work had its time."""

import ctypes
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from waferstream.host import interrupts
from waferstream.host.interrupts import (
    Grace,
    HungUp,
    Terminated,
    deferred,
    ended_within,
    ending,
    exit_code,
    interrupt,
    raising,
)

HANDLED = [
    (signal.SIGINT, KeyboardInterrupt),
    (signal.SIGTERM, Terminated),
    (signal.SIGHUP, HungUp),
]


def _grace() -> AbstractContextManager[None]:
    grace = Grace(60, lambda: None)
    grace.begin()
    return grace.given()


BLOCKS: list[Callable[[], AbstractContextManager[None]]] = [
    raising,
    deferred,
    lambda: ended_within(60),
    _grace,
]


@pytest.fixture(autouse=True)
def _raising() -> Iterator[None]:
    """Let all signals raise, as under the command line."""
    before = {number: signal.signal(number, interrupt) for number, _ in HANDLED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(("number", "kind"), HANDLED)
def test_deferred_signal_is_raised_after_the_block(
    number: signal.Signals, kind: type[BaseException]
) -> None:
    """The block runs to its end, and what it sets as a handler does not stay."""
    done = []

    def work() -> None:
        with deferred():
            signal.raise_signal(number)
            signal.signal(number, lambda *_: None)
            signal.raise_signal(number)
            done.append(1)

    with pytest.raises(kind):
        work()
    assert done
    assert signal.getsignal(number) == interrupt


def test_deferred_in_a_thread_drops_handlers_that_python_does_not_know() -> None:
    """Ray, which starts in a thread, sets one that prints a stack and ends the process."""

    def work() -> None:
        with deferred():
            ctypes.CDLL(None).signal(int(signal.SIGTERM), ctypes.c_void_p(signal.SIG_IGN))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with pytest.raises(Terminated):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("block", [raising, lambda: ended_within(60)])
def test_signal_that_a_destructor_swallows_is_raised_again(
    block: Callable[[], AbstractContextManager[None]],
) -> None:
    class Swallowing:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def work() -> None:
        with block():
            Swallowing()
            time.sleep(20)

    with raising(), pytest.raises(Terminated):
        work()


def test_grace_lets_the_work_end() -> None:
    """The first signal asks, ``end`` raises; the second one raises at once."""
    noted = threading.Event()
    grace = Grace(60, noted.set)
    with grace.given():
        grace.begin()
        grace.end()
        signal.raise_signal(signal.SIGTERM)
        assert grace.is_asked
        assert noted.is_set()
        with pytest.raises(Terminated):
            grace.end()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_note_of_a_grace_comes_before_the_work_that_it_announces() -> None:
    """However late its thread runs: on a busy host, a short step and its save ended before it."""
    said: list[str] = []

    def note() -> None:
        time.sleep(0.1)
        said.append("note")

    grace = Grace(60, note)
    with grace.given():
        grace.begin()
        signal.raise_signal(signal.SIGHUP)
        assert grace.is_asked
        said.append("saved")
    assert said == ["note", "saved"]


@pytest.mark.parametrize("first", [number for number, _ in HANDLED])
def test_closed_terminal_leaves_time_for_the_work(first: signal.Signals) -> None:
    """The kernel and every shell send SIGHUP; timeout(1) sends each signal twice."""
    grace = Grace(60, lambda: None)
    with grace.given():
        grace.begin()
        for number in (first, first, signal.SIGHUP):
            signal.raise_signal(number)
        assert grace.is_asked


def test_second_signal_ends_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it comes later than one of the same cause."""
    monkeypatch.setattr(interrupts, "_ECHO_S", 0)
    with _grace():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_grace_begins_when_there_is_something_to_save() -> None:
    """Before, a signal interrupts at once."""
    with pytest.raises(KeyboardInterrupt), Grace(60, lambda: None).given():
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(("number", "kind"), HANDLED)
def test_grace_ends_after_its_time(number: signal.Signals, kind: type[BaseException]) -> None:
    """Work that takes longer is interrupted."""
    grace = Grace(0.05, lambda: None)

    def work() -> None:
        with grace.given():
            grace.begin()
            signal.raise_signal(number)
            time.sleep(30)

    with pytest.raises(kind):
        work()


@pytest.mark.parametrize(("number", "_kind"), HANDLED)
def test_process_that_hangs_while_it_ends_is_ended(
    number: signal.Signals, _kind: type[BaseException]
) -> None:
    """After the time for the work and that for the end; it dies of the signal."""
    program = f"""
import signal, time
from waferstream.host.interrupts import Grace, ended_within
grace = Grace(0.1, lambda: None)
with ended_within(0.1):
    try:
        with grace.given():
            grace.begin()
            signal.raise_signal({int(number)})
            time.sleep(30)
    finally:
        time.sleep(30)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=20, check=False)
    assert ended.returncode == -number


def test_block_that_ends_in_time_ends_by_the_exception() -> None:
    """The process lives on."""
    with pytest.raises(Terminated), ended_within(0.05):
        signal.raise_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert signal.getsignal(signal.SIGTERM) == interrupt


def test_block_ends_by_the_exception_of_its_signal() -> None:
    """Ray replaces the exception of any signal by that of Ctrl-C."""

    def replaced() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None

    with pytest.raises(Terminated), ended_within(60):
        replaced()


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ignored_signal_stays_ignored(
    block: Callable[[], AbstractContextManager[None]], number: signal.Signals
) -> None:
    """As that of Ctrl-C in the background of a shell, and SIGHUP under nohup."""
    signal.signal(number, signal.SIG_IGN)
    with block():
        signal.raise_signal(number)
    assert signal.getsignal(number) is signal.SIG_IGN


@pytest.mark.parametrize(("number", "kind"), HANDLED)
def test_signals_are_raised_once_for_each_cause(
    number: signal.Signals, kind: type[BaseException]
) -> None:
    """Their exception tells exit code and word."""
    with raising():
        with pytest.raises(kind) as caught:
            signal.raise_signal(number)
        signal.raise_signal(number)
    assert exit_code(caught.value) == 128 + number
    assert ending(caught.value) in ("Interrupted", "Terminated", "Hung up")


def test_signals_do_not_disturb_the_end_of_a_block() -> None:
    """Ctrl-C three times: the first one raises."""
    done = []

    def work() -> None:
        with ended_within(60):
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGTERM)
                done.append(1)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done


@pytest.mark.parametrize("block", ["with deferred(0.1)", "end_quietly(0.1)\nif True"])
def test_block_that_is_not_interrupted_has_a_limit(block: str) -> None:
    """After a signal; a process that hangs at its end ends."""
    program = f"""
import signal, time
from waferstream.host.interrupts import deferred, end_quietly
{block}:
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    time.sleep(30)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=20, check=False)
    assert ended.returncode == -signal.SIGINT
