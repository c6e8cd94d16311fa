"""``waferstream plan``: one step on its machines, and no file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main


def test_plan_is_of_one_step_on_each_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    words = ["params.yaml", "--num_csx=2", "--machine.swarmx.fan_out=2", "--json"]
    assert main(["plan", *words, "--system=CS-2,CS-3"]) == 0
    out, err = capsys.readouterr()
    assert set(tmp_path.iterdir()) == before
    first, second = json.loads(out)
    assert (first["plan"]["system"], second["plan"]["system"]) == ("CS-2", "CS-3")
    assert first["sram"]["peak_bytes"] < first["sram"]["capacity_bytes"]
    assert all(word in err for word in ("A step takes", "MemoryX", "working set", "Weights stream"))
    (point,) = first["plan"]["points"]
    assert point["num_csx"] == 2
    assert sum(point["emulated"]["attribution_ps"].values()) == point["emulated"]["step_ps"]
