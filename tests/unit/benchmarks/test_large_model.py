"""The benchmark of large models measures the phases of a start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.large_model import main
from tests.support.runs.tiny_run import write_run


def test_second_start_finds_the_program_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both starts as their own processes make them, but in this process."""
    write_run(tmp_path, compiles=True)
    starts = []
    for name in ("first", "second"):
        words = ["--params", str(tmp_path / "params.yaml"), "--folder", str(tmp_path / name)]
        assert main(words) == 0
        starts.append(json.loads(capsys.readouterr().out))
    assert [start["is_cache_hit"] for start in starts] == [False, True]
    for start in starts:
        assert 0 < start["created"]["cpu_s"] < start["compiled"]["cpu_s"]
        assert start["peak_bytes"] > 10**8
