"""The benchmark of the fabric simulator runs, checks its results and writes them."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.fabric import CASES, STREAMED, main


def test_main_measures_every_case(tmp_path: Path) -> None:
    """On a few PEs: one result per case, with positive rates."""
    path = tmp_path / "fabric.json"
    assert main(["--rows", "15", "--columns", "14", "--words", "3", "--json", str(path)]) == 0
    results = json.loads(path.read_text())["results"]
    assert [result["name"] for result in results] == [*(case.name for case in CASES), STREAMED]
    assert all(result["pe_cycles_per_s"] > 0 < result["hops"] for result in results)
