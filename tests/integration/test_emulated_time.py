"""A run reports the emulated machine, and one number of cluster.yaml changes the report."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main

UNEVEN = {"jitter": {"seed": 3, "kernel_sigma": 0.1, "stragglers": {"csx-1": 1.5}}}


def run(folder: Path, machine: dict[str, Any], *more: str) -> tuple[int, Any]:
    """Run shortly on two systems of ``machine``; return the exit code and the summary, if any."""
    folder.mkdir()
    flags = write_run(folder, init__loop={"max_steps": 2})
    spec = {"runtime": {"kind": "local"}, "machine": machine}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(spec))
    code = main([*flags, "--mode=train", "--num_csx=2", *more], home=folder)
    summary = folder / "model_dir" / "run_summary.json"
    return code, json.loads(summary.read_text()) if summary.is_file() else None


def test_run_reports_start_up_rate_and_attribution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Terminal and summary report the times; values do not depend on them."""
    code, summary = run(tmp_path / "one", UNEVEN)
    lines = capsys.readouterr().out
    assert code == 0
    assert "Emulated start-up: compile " in lines
    assert "Emulated 2 x CS-2: " in lines
    assert "straggler 3" in lines
    causes = summary["emulated"]["attribution_ps"]
    assert sum(causes.values()) == summary["emulated"]["total_ps"]
    assert causes["straggler"] > 0.3 * causes["overhead"]
    assert summary["start_up"]["programming_ps"] == 110 * 10**12

    _, even = run(tmp_path / "even", {})
    assert even["emulated"]["attribution_ps"]["straggler"] == 0
    assert even["weights_sha256"] == summary["weights_sha256"]


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ({"memoryx": {"flash_bandwidth_bytes_per_s": 0}}, ["flash_bandwidth_bytes_per_s", "0"]),
        ({"swarmx": {"fan_out": 7}}, ["swarmx.fan_out", "swarmx.node_ports, 6"]),
        ({"system": {"fabric": {"rows": 2000}}}, ["system.fabric", "at most system.cores"]),
        ({"input": {"hdf5": {"samples_ps": 5}}}, ["input.hdf5", "did you mean 'sample_ps'"]),
    ],
)
def test_impossible_hardware_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], machine: dict[str, Any], words: list[str]
) -> None:
    """The message names file, key and rule; no file is left."""
    code, summary = run(tmp_path / "bad", machine, "--validate_only")
    err = capsys.readouterr().err
    assert code == 1
    assert summary is None
    assert "Traceback" not in err
    for word in ("cluster.yaml", *words):
        assert word in err
    assert not (tmp_path / "bad" / "model_dir").exists()
