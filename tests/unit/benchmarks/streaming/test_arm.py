"""An arm's processes: they obey, fail aloud, and are gone when the arm is closed."""

import operator
import os
import signal
import subprocess
import threading
import time
from contextlib import closing, nullcontext
from functools import partial

import pytest

from benchmarks.streaming.arm import Arm
from wsc.core.errors import WaferStreamError


def opener(run):
    """A process whose steps are ``run(steps)``."""
    return partial(nullcontext, run)


def test_seconds_are_measured_around_the_steps_of_the_slowest_process():
    """An arm of several processes has done its steps when the last one has."""
    with closing(Arm("two", [opener(bool), opener(partial(operator.mul, 10**6))])) as arm:
        first, second = arm.run(2), arm.run(3)
    assert 0 < first < 1
    assert 0 < second < 1


def test_a_process_that_raises_is_reported_with_its_traceback():
    """What failed over there is what one reads here."""
    with pytest.raises(WaferStreamError, match=r"(?s)an arm failed.*empty.*IndexError"):
        Arm("empty", [opener(partial(operator.getitem, ()))])


def test_a_process_that_dies_is_noticed():
    """No answer ever comes from a dead process; that is an error, not a wait."""
    with pytest.raises(WaferStreamError, match=r"(?s)an arm died.*mortal.*exit code 1"):
        Arm("mortal", [opener(os._exit)])


def test_the_first_failure_ends_the_wait_for_the_others():
    """A rank that waits for a failed one would wait for minutes; its arm does not."""
    waits = opener(partial(subprocess.call, ["sleep", "600"]))
    with pytest.raises(WaferStreamError, match="an arm died"):
        Arm("unequal", [waits, opener(os._exit)])


def test_ctrl_c_ends_a_process_in_the_middle_of_its_steps():
    """A step of a large model takes a minute: nobody waits for it, and nothing is left running."""
    with closing(Arm("slow", [opener(time.sleep)])) as arm:
        (process,) = arm._processes.values()
        pid = process.pid
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            arm.run(10_000)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_closed_arm_can_be_closed_again():
    """``close`` stands in many a ``finally``."""
    arm = Arm("closed", [opener(bool)])
    arm.close()
    arm.close()
