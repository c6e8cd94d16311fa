"""Processor time is that of a whole tree of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchmarks.processes import busy_below


def test_processes_below_a_process_follow_it() -> None:
    words = [sys.executable, "-c", "input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        found = list(busy_below(os.getpid()))
        assert next(iter(found)).pid == os.getpid()
        (below,) = [process for process in found if process.pid == child.pid]
        assert "python" in below.name
        child.communicate(b"\n")


def test_time_grows_while_a_process_computes() -> None:
    before = next(busy_below(os.getpid())).busy_s
    begin_s = time.process_time()
    while time.process_time() < begin_s + 0.1:
        pass
    assert next(busy_below(os.getpid())).busy_s >= before + 0.08  # in ticks of 10 ms


def test_process_that_has_ended_has_no_time() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert list(busy_below(child.pid)) == []
