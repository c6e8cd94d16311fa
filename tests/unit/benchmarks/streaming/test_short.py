"""The short comparison: one command for both measurements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest

from benchmarks.streaming import __main__ as streaming
from benchmarks.streaming import exposure, short
from benchmarks.streaming.arms import openers
from benchmarks.streaming.workload import workload_of


def called_by(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[Sequence[str]]:
    """Return the arguments of what the command measures; its arms can train their batches."""
    called: list[Sequence[str]] = []

    def parsed(arguments: Sequence[str]) -> int:
        options = streaming._parser().parse_args(arguments)
        for batch_size in options.batch_sizes:
            for name in chain(*options.arms):
                openers(name, workload_of(options, batch_size), tmp_path)
        called.append(arguments)
        return 0

    def noted(arguments: Sequence[str]) -> int:
        called.append(arguments)
        return 0

    monkeypatch.setattr(streaming, "main", parsed)
    monkeypatch.setattr(exposure, "main", noted)
    assert short.main(words) == 0
    return called


def test_main_measures_arms_that_can_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every arm of every group can train both batch sizes."""
    called = called_by(["--json", str(tmp_path / "short.json")], monkeypatch, tmp_path)
    assert str(tmp_path / "short_exposure.json") in called[1]


def test_quick_pairs_all_systems_with_best(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """1, 2, 4 and 8 systems, each beside the best loop; two of them beside DDP and FSDP2."""
    words = ["--quick", "--json", str(tmp_path / "quick.json")]
    (arguments,) = called_by(words, monkeypatch, tmp_path)
    options = streaming._parser().parse_args(arguments)
    beside = {name: group for group in options.arms for name in group if name.startswith("csx")}
    assert sorted(beside) == ["csx1", "csx2", "csx4", "csx8"]
    assert all("best" in group for group in beside.values())
    assert {"ddp2", "fsdp2"} <= set(beside["csx2"])
    assert (options.batch_sizes, options.steps, options.repeats) == ([8], 1, 3)


def test_main_stops_at_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(streaming, "main", lambda _: 1)
    monkeypatch.setattr(exposure, "main", lambda _: pytest.fail("measured after a failure"))
    assert short.main(["--json", str(tmp_path / "short.json")]) == 1
