"""The benchmark of simulated curves runs on any params files and writes its results."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.simulate_curve import main
from tests.support.runs.tiny_run import write_run


def test_main_times_every_curve_repeatedly(tmp_path: Path) -> None:
    """The fastest repeat counts; capturing the step is measured separately."""
    fill_wafer = {"ScopedTrainFlags": {"csx.performance.micro_batch_size": "fill_wafer"}}
    write_run(tmp_path, compiles=True, init__callbacks=[fill_wafer])
    path = tmp_path / "curves.json"
    params = str(tmp_path / "params.yaml")
    arguments = ["--sweep", "1-4", "--repeats", "2", "--json", str(path)]
    assert main(["--params", params, params, *arguments]) == 0
    curves = json.loads(path.read_text())["curves"]
    assert len(curves) == 2
    for kept in curves:
        assert kept["parameters"] > kept["segments"] > 0
        assert kept["micro_batch_sizes"] == 4
        assert len(kept["repeats_s"]) == 2
        assert kept["curve_s"] == min(kept["repeats_s"])
        assert kept["capture_s"] > 0
