"""Pulses: what a process states is what another reads, whatever state the process is in."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import pytest

from appliance.health.pulse import _LAYOUT, Activity, PulseWriter, read_pulse
from tests.support.errors import raises
from waferstream.core.errors import ApplianceRuntimeServerError


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as sleeper:
        yield sleeper
        sleeper.kill()


def test_pulse_is_read_as_it_was_written() -> None:
    """Activity, step, detail and peers come back; the time of work is added up."""
    writer = PulseWriter()
    assert read_pulse(os.getpid(), writer.payload).activity is Activity.IDLE
    writer.work("WeightsReady from br-0", 7)
    time.sleep(0.02)
    working = read_pulse(os.getpid(), writer.payload)
    assert (working.activity, working.step) == (Activity.WORK, 7)
    assert working.detail == "WeightsReady from br-0"
    assert working.age_s >= 0.02
    writer.wait()
    writer.explain("weights of step 7", ["br-0", "wrk-1"])
    waiting = read_pulse(os.getpid(), writer.payload)
    assert (waiting.activity, waiting.step) == (Activity.WAIT, 7)
    assert (waiting.detail, waiting.peers) == ("weights of step 7", ("br-0", "wrk-1"))
    assert waiting.busy_s >= 0.02
    assert waiting.age_s < working.age_s + 1


def test_failed_call_keeps_only_what_was_waited_for() -> None:
    """Who waits for whom is read after the waits have failed; other work has ended."""
    writer = PulseWriter()
    writer.call("begin train step 1")
    writer.wait()
    writer.explain("weights of step 7", ["br-0"])
    writer.fail()
    waiting = read_pulse(os.getpid(), writer.payload)
    assert (waiting.activity, waiting.peers) == (Activity.WAIT, ("br-0",))
    writer.call("install")
    writer.fail()
    assert read_pulse(os.getpid(), writer.payload).activity is Activity.IDLE


def test_long_text_is_cut() -> None:
    """A text of any length leaves the rest of the pulse intact."""
    writer = PulseWriter()
    writer.work("é" * 1000, 3)
    pulse = read_pulse(os.getpid(), writer.payload)
    assert pulse.step == 3
    assert 100 < len(pulse.detail) < 200


@contextmanager
def fork(work: Callable[[Connection], None]) -> Iterator[tuple[int, Any]]:
    """Let a fork of this process work, and kill it at the end; return its id and what it sends first."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=work, args=(there,))
    process.start()
    assert process.pid is not None
    try:
        yield process.pid, here.recv()
    finally:
        process.kill()
        process.join()
        process.close()
        here.close()
        there.close()


def write_for_ever(there: Connection) -> None:
    """Send the payload of a pulse, then write the pulse."""
    writer = PulseWriter()
    there.send(writer.payload)
    for step in range(10**9):
        writer.work(str(step), step)


def write_nothing(there: Connection) -> None:
    """Send the payload of a pulse, and wait."""
    writer = PulseWriter()
    there.send(writer.payload)
    there.recv()


def test_pulse_read_beside_writes_is_whole() -> None:
    """No read mixes two pulses, or finds a part that is not yet written."""
    with fork(write_for_ever) as (pid, payload):
        pulses = [read_pulse(pid, payload) for _ in range(10_000)]
    later = [each for each in pulses if each.activity is not Activity.IDLE]
    assert len(later) > 100
    assert [each for each in later if each.detail != str(each.step)] == []
    assert max(each.age_s for each in later) < 60


class HalfDone:
    """A layout whose writes end after the first bytes."""

    size = _LAYOUT.size

    def pack_into(self, memory: memoryview, offset: int, *_: object) -> None:
        memory[offset : offset + 16] = bytes(16)
        raise InterruptedError


def test_process_held_up_in_a_write_shows_the_pulse_before(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = PulseWriter()
    writer.work("WeightsReady from br-0", 7)
    with monkeypatch.context() as patch:
        patch.setattr("appliance.health.pulse._LAYOUT", HalfDone())
        with pytest.raises(InterruptedError):
            writer.wait()
    seen = read_pulse(os.getpid(), writer.payload)
    assert (seen.activity, seen.step) == (Activity.WORK, 7)
    assert seen.age_s < 60


def test_stopped_process_is_told_from_one_that_runs(process: subprocess.Popen[bytes]) -> None:
    """SIGSTOP, SIGCONT and SIGKILL show in the pulse without any help of the process."""
    payload = PulseWriter().payload

    def becomes(*, stopped: bool, alive: bool) -> bool:
        for _ in range(500):
            pulse = read_pulse(process.pid, payload)
            if (pulse.is_stopped, pulse.is_alive) == (stopped, alive):
                return True
            time.sleep(0.01)
        return False

    assert becomes(stopped=False, alive=True)
    for number, expected in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
        process.send_signal(number)
        assert becomes(stopped=expected, alive=True)
    process.kill()
    assert becomes(stopped=False, alive=False)


def test_pulse_of_an_ended_process_is_an_error() -> None:
    """Where the process that holds the memory has ended, there is no pulse."""
    with fork(write_nothing) as (_, payload):
        pass
    with raises(ApplianceRuntimeServerError, "shared-memory-gone"):
        read_pulse(os.getpid(), payload)
