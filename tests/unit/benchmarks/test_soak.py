"""The soak: which process is which, and what counts as growth."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import soak
from benchmarks.chaos.leftovers import Census
from benchmarks.soak import Sample, Soak, gain, main, name_of, sample_of
from tests.support.host.processes import running, write_endless_program
from waferstream.host.interrupts import Terminated


def test_processes_are_named_by_their_titles() -> None:
    """Roles and coordinator have Ray's titles; Ray's own processes are known by their program."""
    assert name_of("ray::csx-1.run") == "csx-1"
    assert name_of("ray::HostedCoordinator.do") == "crd-0"
    assert name_of("ray::SpareCoordinator") == "spare crd-0"
    assert name_of("ray::spare.run") == "spare role"
    assert name_of("/site-packages/ray/core/src/ray/gcs/gcs_server --log_dir=x") == "gcs_server"
    assert name_of("/usr/bin/python /src/run.py --params=p") == "run.py"
    assert name_of("ray::IDLE") is None
    assert name_of("") is None


def test_gain_leaves_the_start_out() -> None:
    """A process that grows while it starts, and then no more, has gained nothing."""
    started = [Sample(at, memory, 9, 4) for at, memory in enumerate([10, 500, 1000, 1000])]
    flat = [Sample(at, 1000, 9, 4) for at in range(4, 16)]
    assert gain([*started, *flat])["memory_kib"] == 0
    growing = [Sample(at, 100 * at, 9 + at, 4) for at in range(16)]
    assert gain(growing) == {"memory_kib": 800, "descriptors": 8, "threads": 0, "seconds": 15}


def test_longest_process_of_a_role_counts() -> None:
    """Processes before and after a restart are not mixed, and a short one says nothing."""
    lives = Soak({("csx-0", 1): [Sample(0, 1, 1, 1)] * 3, ("csx-0", 2): [Sample(0, 5, 1, 1)] * 8})
    assert dict(lives.growth())["csx-0"]["memory_kib"] == 0
    assert dict(Soak({("csx-0", 1): [Sample(0, 1, 1, 1)] * 3}).growth()) == {}


def test_sample_of_this_process() -> None:
    """What the kernel says; None for a process that does not exist."""
    sample = sample_of(os.getpid(), 3.0)
    assert sample is not None
    assert sample.at_s == 3.0
    assert min(sample.memory_kib, sample.descriptors, sample.threads) >= 1
    assert sample_of(2**22 + 1, 0.0) is None


def test_what_is_left_behind_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exit status of 1 has its reason on the terminal."""
    figures: dict[str, Any] = {"gains": {}, "steps": 9, "restarts": 0}
    for left, status in (({}, 0), ({"processes": ["17 ray::csx-0"]}, 1)):
        monkeypatch.setattr(soak, "soak", lambda *_, left=left: figures | {"left_behind": left})
        assert main([]) == status
        assert ("17 ray::csx-0" in capsys.readouterr().out) == bool(left)


def test_sigterm_ends_the_training(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else it would go on for millions of steps."""
    started: list[int] = []

    def note_and_end(_census: object, pid: int) -> None:
        started.append(pid)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(sys, "executable", str(write_endless_program(tmp_path / "program")))
    monkeypatch.setattr(Census, "note_processes", note_and_end)
    with pytest.raises(Terminated):
        main(["--minutes", "0.1", "--period", "0.01"])
    assert len(started) == 1
    assert running(started) == set()


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.timeout(1200)
def test_nothing_grows_in_a_few_minutes(tmp_path: Path) -> None:
    """Small steps with restarts; Ray's head, too, keeps nothing of a call."""
    path = tmp_path / "soak.json"
    arguments = ["--minutes", "5", "--steps_per_fault", "400", f"--json={path}"]
    assert main(arguments) == 0
    gains = json.loads(path.read_text())["gains"]
    assert {"gcs_server", "wgt-0", "crd-0"} <= set(gains)
    for name, gained in gains.items():
        assert gained["descriptors"] <= 2, name
        assert gained["threads"] <= 2, name
        assert gained["memory_kib"] < 8 * 1024, name
