"""Differences between the results of two environments."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.compare_vendor.__main__ import (
    PRECISION,
    PROGRAMS,
    ROOT,
    Difference,
    differences,
    judged,
    main,
)


def largest(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, float]:
    """The largest difference of every case."""
    arrays = [{name: np.asarray(value) for name, value in side.items()} for side in (ours, theirs)]
    return {each.case: each.largest for each in differences(*arrays)}


def test_largest_difference_of_every_case() -> None:
    ours = {"adam/losses": [1.0, 2.0], "adam/weight": [0.5], "sgd/losses": [math.nan, math.inf]}
    theirs = {"adam/losses": [1.0, 2.5], "adam/weight": [0.75], "sgd/losses": [math.nan, math.inf]}
    assert largest(ours, theirs) == {"adam": 0.5, "sgd": 0.0}


def test_values_that_cannot_be_compared_differ_infinitely() -> None:
    assert largest({"a/x": [1.0]}, {"a/x": [1.0, 1.0]}) == {"a": math.inf}
    assert largest({"a/x": [math.nan]}, {"a/x": [1.0]}) == {"a": math.inf}
    assert largest({"a/x": [1.0]}, {}) == {"a": math.inf}
    assert largest({"a/error": "TypeError"}, {"a/x": [1.0]}) == {"a": math.inf}


def test_cases_that_both_refuse_are_equal() -> None:
    assert largest({"a/error": "ConfigError: x"}, {"a/error": "ValueError: y"}) == {"a": 0.0}


def test_known_differences_do_not_fail() -> None:
    cases = [("sgd", 0.0), ("sgd", 1e-7), ("sgd", 1e-3), ("nadam", 1e-3), ("nadam", 1e-7)]
    verdicts = [judged(Difference(case, largest, ""), 1e-6) for case, largest in cases]
    assert verdicts == ["equal", "close", "DIFFERS", "known", "close"]


def test_every_program_has_a_precision() -> None:
    assert set(PRECISION) == {path.stem for path in PROGRAMS.glob("*.py")} - {"harness"}


def test_program_without_results_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The command names the program that failed, and ends with 1."""
    assert main(["--python", "false", "--programs", "data"]) == 1
    assert "program-without-results" in capsys.readouterr().err


def test_program_runs_here_through_exec(tmp_path: Path) -> None:
    """In a process of its own, which forks one for each case before torch has threads."""
    cluster, out = tmp_path / "cluster.yaml", tmp_path / "out.npz"
    cluster.write_text("runtime: {kind: local}\n")
    here = [sys.executable, "-m", "waferstream", "exec", f"--cluster={cluster}"]
    program = [str(PROGRAMS / "data.py"), "--device=CSX", f"--out={out}", "--only", "loop-both"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*here, *program], cwd=tmp_path, env=variables, check=True)
    arrays = np.load(out)
    assert arrays["loop-both/saved"].tolist() == [4, 8, 12]
    assert arrays["loop-both/steps"].tolist() == [2, 4, 6, 8, 10, 12]
