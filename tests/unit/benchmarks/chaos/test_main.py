"""The chaos run from end to end: on one process here, on Ray in a nightly run."""

import json
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.chaos.__main__ import main
from benchmarks.chaos.training import Training
from tests.support.host.processes import running, write_endless_program
from waferstream.host.interrupts import Terminated


def test_short_run_has_the_weights_without_faults(tmp_path: Path) -> None:
    """Two faults happen, the run goes on by itself, and nothing is left."""
    path = tmp_path / "chaos.json"
    kinds = ["--kinds", "exception", "drop", "--steps", "10"]
    assert main(["--faults", "2", "--cluster", "local", *kinds, f"--json={path}"]) == 0
    figures = json.loads(path.read_text())
    assert figures["faults_happened"] == 2
    assert figures["is_equal"]
    assert figures["left_behind"] == {}


def test_sigterm_ends_the_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command of the training ends, too, and is not started again."""
    started: list[int] = []

    def note_and_end(_training: object, _line: str, pid: int) -> None:
        started.append(pid)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(sys, "executable", str(write_endless_program(tmp_path / "program")))
    monkeypatch.setattr(Training, "_take", note_and_end)
    with pytest.raises(Terminated):
        main(["--faults", "1", "--cluster", "local", "--steps", "10"])
    assert len(started) == 1
    assert running(started) == set()


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_run_on_ray_has_the_weights_without_faults(tmp_path: Path) -> None:
    """Faults of processes and of messages, at roles, coordinator, driver and Ray."""
    path = tmp_path / "chaos.json"
    assert main(["--faults", "20", "--seed", "1", f"--json={path}"]) == 0
    assert json.loads(path.read_text())["faults_happened"] >= 18
