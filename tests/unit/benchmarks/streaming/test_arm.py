"""Processes of an arm train on request, report failures, and end when the arm is closed."""

from __future__ import annotations

import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from benchmarks.streaming.arm import Arm, Opener
from tests.support.errors import raises
from tests.support.host.processes import descendants, wait_for_end, wait_for_state
from waferstream.core.errors import WaferStreamError


def opener(run: Callable[[int], object]) -> Opener:
    """Return the opener of a process whose steps are ``run(steps)``."""
    return cast(Opener, partial(nullcontext, run))


def note(path: Path, steps: int) -> None:
    """Append the number of steps to a file."""
    with path.open("a") as file:
        file.write(f"{steps} ")


def test_run_returns_the_seconds_of_the_slowest_process() -> None:
    """An arm of several processes has done its steps when the last one has."""
    with closing(Arm("two", [opener(bool), opener(partial(operator.mul, 10**6))])) as arm:
        first, second = arm.run(2), arm.run(3)
    assert first > 0
    assert second > 0


def test_first_step_after_a_stop_does_not_count(tmp_path: Path) -> None:
    """It is slower than others, for some arms more than for others."""
    notes = tmp_path / "steps"
    with closing(Arm("noted", [opener(partial(note, notes))], warm_up_steps=2)) as arm:
        arm.run(3)
    assert notes.read_text() == "2 1 3 "


def test_arm_reports_the_traceback_of_a_failed_process() -> None:
    """The error names the arm and its value is the traceback."""
    with raises(WaferStreamError, "arm-failed") as caught:
        Arm("empty", [opener(partial(operator.getitem, ()))])
    assert caught.value.where == "empty"
    assert "IndexError" in (caught.value.value or "")


def test_arm_reports_a_process_that_died() -> None:
    """A dead process never answers; that is an error, not a wait."""
    with raises(WaferStreamError, "arm-died") as caught:
        Arm("mortal", [opener(os._exit)])
    assert (caught.value.where, caught.value.value) == ("mortal", "exit code 1")


def test_arm_does_not_wait_for_others_after_a_failure() -> None:
    """A rank may wait minutes for a failed one; the arm does not."""
    waits = opener(partial(subprocess.call, ["sleep", "600"]))
    with raises(WaferStreamError, "arm-died"):
        Arm("unequal", [waits, opener(os._exit)])


def test_waiting_arm_is_stopped_with_all_its_processes() -> None:
    """What waits for its next trial takes no processor time from the arm that is measured."""
    with closing(Arm("parent", [opener(_start_once)])) as arm:
        (process,) = arm._processes.values()
        assert process.pid is not None
        pids = {process.pid, *descendants(process.pid)}
        assert len(pids) == 2
        assert wait_for_state(pids, "T") == set()
        arm.run(1)
        assert wait_for_state(pids, "T") == set()


@pytest.mark.parametrize("kill", [os.kill, os.killpg])
def test_waiting_arm_ends_with_its_parent(kill: Callable[[int, int], None]) -> None:
    """Who ends a benchmark, or all of its group, leaves no stopped process behind."""
    module = "tests.unit.benchmarks.streaming.test_arm"
    program = f"from {module} import wait_with_an_arm as f; f()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"waiting\n"
        tree = descendants(parent.pid)
        assert tree
        kill(parent.pid, signal.SIGTERM)
    assert wait_for_end(tree) == set()


def wait_with_an_arm() -> None:
    """Set an arm up, and wait until this process is killed."""
    arm = Arm("parent", [opener(_start_once)])
    arm.run(1)
    print("waiting", flush=True)
    signal.pause()


def _start_once(_: int) -> None:
    """Start a process that ends with the pipe of its first caller."""
    if not descendants(os.getpid()):
        subprocess.Popen(["cat"], stdin=subprocess.PIPE)


def test_close_ends_a_process_within_its_steps() -> None:
    """Ctrl-C does not wait for a step of a large model, and leaves no process."""
    with closing(Arm("slow", [opener(time.sleep)])) as arm:
        (process,) = arm._processes.values()
        pid = process.pid
        assert pid is not None
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            arm.run(10_000)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


class HeldUp:
    """Steps whose end hangs, as that of a process group can."""

    def __call__(self, steps: int) -> None:
        """Do nothing."""

    def __del__(self) -> None:
        if multiprocessing.parent_process() is not None:
            time.sleep(60)


def test_process_ends_without_freeing_its_loop() -> None:
    arm = Arm("held up", [opener(HeldUp())])
    (process,) = arm._processes.values()
    arm.close()
    assert process.exitcode == 0


def test_close_is_idempotent() -> None:
    """``close`` is called in several ``finally`` blocks."""
    arm = Arm("closed", [opener(bool)])
    arm.close()
    arm.close()
