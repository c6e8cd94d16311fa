"""The arms of the comparison of sparse trainings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.sparsity.accuracy import main, phases


def test_every_phase_starts_from_an_earlier_one() -> None:
    found = phases(40, [0.75, 0.9], [0.5, 0.6, 0.75])
    names = [phase.name for phase in found]
    assert len(set(names)) == len(names) == 1 + 2 * 6 + 3 * 2
    for place, phase in enumerate(found):
        assert phase.start is None or phase.start in names[:place]
        assert phase.last_step <= 41
    assert sum(phase.learning_rate == 0 for phase in found) == 3 * 2  # pruned without training


@pytest.mark.nightly
def test_every_phase_trains(tmp_path: Path) -> None:
    path = tmp_path / "losses.json"
    words = ["--steps", "4", "--shares", "0.75", "--at_once", "0.5", "--seeds", "2"]
    main(["--json", str(path), *words])
    losses = json.loads(path.read_text())["held_out_losses"]
    assert set(losses) == {phase.name for phase in phases(4, [0.75], [0.5])}
    assert all(3 < loss < 6 for both in losses.values() for loss in both)
    assert all(len(set(both)) == 2 for both in losses.values())
