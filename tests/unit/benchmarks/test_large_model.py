"""The benchmark of large models measures both starts of a params file."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.large_model import main
from tests.support.tiny_run import write_run


def test_main_measures_a_first_and_a_second_start(tmp_path: Path) -> None:
    """The second start finds the program that the first one has compiled."""
    write_run(tmp_path)
    path = tmp_path / "large_model.json"
    assert main(["--params", str(tmp_path / "params.yaml"), "--json", str(path)]) == 0
    (model,) = json.loads(path.read_text())["models"]
    first, second = model["starts"]
    assert (first["is_cache_hit"], second["is_cache_hit"]) == (False, True)
    for start in (first, second):
        assert 0 < start["created"]["cpu_s"] < start["compiled"]["cpu_s"]
        assert start["peak_bytes"] > 10**8
