"""Signals are raised at once, after a block, or when the current work had its time."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from wsc.host.interrupts import Grace, Terminated, deferred, ended_within, interrupt

HANDLED = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]


@pytest.fixture(autouse=True)
def _raising() -> Iterator[None]:
    """Let both signals raise, as under the command line."""
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


def test_grace_lets_the_work_end() -> None:
    """The first signal asks, ``end`` raises; the second one raises at once."""
    notes: list[str] = []
    grace = Grace(60, lambda: notes.append("asked"))
    with grace.given():
        grace.begin()
        grace.end()
        signal.raise_signal(signal.SIGTERM)
        assert grace.is_asked
        assert notes == ["asked"]
        with pytest.raises(Terminated):
            grace.end()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_grace_begins_when_there_is_something_to_save() -> None:
    """Before, a signal interrupts at once."""
    with pytest.raises(KeyboardInterrupt), Grace(60, lambda: None).given():
        signal.raise_signal(signal.SIGINT)


def test_grace_ends_after_its_time() -> None:
    """Work that takes longer is interrupted."""
    grace = Grace(0.05, lambda: None)

    def work() -> None:
        with grace.given():
            grace.begin()
            signal.raise_signal(signal.SIGTERM)
            time.sleep(30)

    with pytest.raises(Terminated):
        work()


@pytest.mark.parametrize(("number", "_kind"), HANDLED)
def test_process_that_hangs_while_it_ends_is_ended(
    number: signal.Signals, _kind: type[BaseException]
) -> None:
    """After the time for the work and that for the end; the exit code is that of the signal."""
    program = f"""
import signal, time
from wsc.host.interrupts import Grace, ended_within
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
    assert ended.returncode == 128 + number


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
