"""The arms of the comparison of sparse trainings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.sparsity.accuracy import main, phases


def test_every_phase_starts_from_an_earlier_one() -> None:
    found = phases(40, [0.75, 0.9])
    names = [phase.name for phase in found]
    assert len(set(names)) == len(names) == 1 + 2 * 7
    for place, phase in enumerate(found):
        assert phase.start is None or phase.start in names[:place]
        assert phase.last_step <= 41
    assert sum(phase.learning_rate == 0 for phase in found) == 2  # pruned without training


@pytest.mark.nightly
def test_every_phase_trains(tmp_path: Path) -> None:
    path = tmp_path / "losses.json"
    main(["--json", str(path), "--steps", "4", "--shares", "0.75"])
    losses = json.loads(path.read_text())["held_out_losses"]
    assert set(losses) == {phase.name for phase in phases(4, [0.75])}
    assert all(3 < loss < 6 for loss in losses.values())
