"""The chaos run from end to end: on one process here, on Ray in a nightly run."""

import json
from pathlib import Path

import pytest

from benchmarks.chaos.__main__ import main


def test_short_run_has_the_weights_without_faults(tmp_path: Path) -> None:
    """Two faults happen, the run goes on by itself, and nothing is left."""
    path = tmp_path / "chaos.json"
    kinds = ["--kinds", "exception", "drop", "--steps", "10"]
    assert main(["--faults", "2", "--cluster", "local", *kinds, f"--json={path}"]) == 0
    figures = json.loads(path.read_text())
    assert figures["faults_happened"] == 2
    assert figures["is_equal"]
    assert figures["left_behind"] == {}


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.timeout(1800)
def test_run_on_ray_has_the_weights_without_faults(tmp_path: Path) -> None:
    """Faults of processes and of messages, at roles, coordinator, driver and Ray."""
    path = tmp_path / "chaos.json"
    assert main(["--faults", "20", "--seed", "1", f"--json={path}"]) == 0
    assert json.loads(path.read_text())["faults_happened"] >= 18
