"""The short comparison: one command for both measurements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest

from benchmarks.streaming import __main__ as streaming
from benchmarks.streaming import exposure, short
from benchmarks.streaming.arms import openers


def test_main_measures_arms_that_can_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every arm of every group can train both batch sizes."""
    called: list[Sequence[str]] = []

    def parsed(arguments: Sequence[str]) -> int:
        options = streaming._parser().parse_args(arguments)
        for batch_size in options.batch_sizes:
            for name in chain(*options.arms):
                openers(name, streaming._workload(options, batch_size), tmp_path)
        called.append(arguments)
        return 0

    def noted(arguments: Sequence[str]) -> int:
        called.append(arguments)
        return 0

    monkeypatch.setattr(streaming, "main", parsed)
    monkeypatch.setattr(exposure, "main", noted)
    assert short.main(["--json", str(tmp_path / "short.json")]) == 0
    assert str(tmp_path / "short_exposure.json") in called[1]


def test_main_stops_at_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(streaming, "main", lambda _: 1)
    monkeypatch.setattr(exposure, "main", lambda _: pytest.fail("measured after a failure"))
    assert short.main(["--json", str(tmp_path / "short.json")]) == 1
