"""``waferstream exec`` on real Ray: the program's own code in every role, and a clean end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.host.processes import descendants, wait_for_end
from tests.support.programs.exec_program import STEPS, write_cluster, write_program
from tests.support.runs.tiny_run import ROOT
from waferstream.cli.main import main

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]


def test_exec_on_ray_imports_user_code_and_ends_on_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Input workers import the loader beside the program, which imports the vendor's module."""
    folder = write_program(tmp_path)
    monkeypatch.chdir(folder)
    words = ["exec", "--num_csx=2", "code/train_it.py", str(folder)]
    assert main(words) == 0
    expected = json.loads((folder / "losses.json").read_text())
    write_cluster(folder, "ray")
    losses: list[float] = []
    with subprocess.Popen(
        [sys.executable, "-m", "waferstream", *words, f"--wait_at={STEPS}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while len(losses) < STEPS:
            line = process.stdout.readline().split()
            if line[:1] == ["step"]:
                losses.append(float(line[2]))
            assert process.poll() is None
        tree = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert losses == expected
    assert process.returncode == -signal.SIGINT
    assert "Interrupted" in err
    assert wait_for_end(tree) == set()
