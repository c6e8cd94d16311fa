"""Processes of Ray that are stopped are ended, and waited for until then."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray._private import worker

from appliance.health.pulse import STOPPED, state_of
from appliance.ray.connection import processes
from appliance.ray.connection.processes import StoppedProcesses, lost_process, why_lost

LIMIT_S = 0.6

_PARENT = """
import subprocess, sys
child = subprocess.Popen(["bash", "-c", "exec -a ray::RuntimeEnvAgent sleep 60"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> StoppedProcesses:
    found = StoppedProcesses()
    found.limit_s = LIMIT_S
    monkeypatch.setattr(processes, "STOPPED_PROCESSES", found)
    return found


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def await_state(pid: int, state: str) -> None:
    while state_of(pid) != state:
        time.sleep(0.01)


def test_process_that_stays_stopped_is_lost(
    watch: StoppedProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question waits for the decision, so that nothing is asked of a stopped process."""
    with sleeping() as process:
        node = SimpleNamespace(all_processes={"raylet": [SimpleNamespace(process=process)]})
        monkeypatch.setattr(worker, "_global_node", node)
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        watch.watch(process)
        assert lost_process() is None
        os.kill(process.pid, signal.SIGSTOP)
        await_state(process.pid, STOPPED)
        assert lost_process() == "raylet"
        assert process.wait() == -signal.SIGKILL
        assert "SIGSTOP" in why_lost()


def test_process_that_goes_on_is_kept(watch: StoppedProcesses) -> None:
    with sleeping() as process:
        watch.watch(process)
        for _ in range(3):
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(LIMIT_S / 3)
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(LIMIT_S / 2)
        assert process.poll() is None


def test_stopped_agent_of_a_process_is_ended(watch: StoppedProcesses) -> None:
    """Ray waits for it without a limit; its raylet ends with it."""
    command = [sys.executable, "-S", "-c", _PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        agent = int(process.stdout.readline())
        watch.watch(process)
        while not Path(f"/proc/{agent}/cmdline").read_bytes().startswith(b"ray::"):
            time.sleep(0.01)
        os.kill(agent, signal.SIGSTOP)
        assert process.wait(20) == 0
        assert watch.ended == {agent}
