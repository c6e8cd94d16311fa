"""What a run tells of the emulated machine, and how one number of cluster.yaml changes it."""

import json

import pytest
import yaml

from tests.support.tiny_run import write_run
from waferstream.cli.main import main

UNEVEN = {"jitter": {"seed": 3, "kernel_sigma": 0.1, "stragglers": {"csx-1": 1.5}}}


def run(folder, machine, *more):
    """The exit code of a short run on two systems of that machine, and its summary if it ended."""
    folder.mkdir()
    flags = write_run(folder, init__loop={"max_steps": 2})
    spec = {"runtime": {"kind": "local"}, "machine": machine}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(spec))
    code = main([*flags, "--mode=train", "--num_csx=2", *more], home=folder)
    summary = folder / "model_dir" / "run_summary.json"
    return code, json.loads(summary.read_text()) if summary.is_file() else None


def test_a_run_tells_start_rate_and_causes(tmp_path, capsys) -> None:
    """On the terminal for people, in the summary for programs; values do not feel the time."""
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
def test_impossible_hardware_ends_with_one_message(tmp_path, capsys, machine, words) -> None:
    """It names the file, the key and the rule, and nothing is left behind."""
    code, summary = run(tmp_path / "bad", machine, "--validate_only")
    err = capsys.readouterr().err
    assert code == 1
    assert summary is None
    assert "Traceback" not in err
    for word in ("cluster.yaml", *words):
        assert word in err
    assert not (tmp_path / "bad" / "model_dir").exists()
