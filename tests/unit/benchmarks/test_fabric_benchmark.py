"""The benchmark of the fabric simulator runs, checks its results and writes them."""

import json

from benchmarks.fabric import CASES, STREAMED, main


def test_every_case_is_measured(tmp_path):
    """On a few PEs: a row of JSON per case, with positive rates."""
    path = tmp_path / "fabric.json"
    assert main(["--rows", "15", "--columns", "14", "--words", "3", "--json", str(path)]) == 0
    results = json.loads(path.read_text())["results"]
    assert [result["name"] for result in results] == [*(case.name for case in CASES), STREAMED]
    assert all(result["pe_cycles_per_s"] > 0 < result["hops"] for result in results)
