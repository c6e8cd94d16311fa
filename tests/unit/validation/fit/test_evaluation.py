"""Fits are evaluated on all their rows, and on each model without its own rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.timing.reference_rows import row, write_rows
from validation.fit.calibration import Constants, Fit
from validation.fit.evaluation import evaluate
from validation.rows.reader import read_rows
from validation.rows.row import Row


def _mean(rows: Sequence[Row]) -> Constants:
    return {"hop_cycles": sum(float(row.value) for row in rows) / len(rows)}


FIT = Fit("collectives", _mean, lambda _, constants: constants["hop_cycles"])


def _rows(folder: Path, *columns: dict[str, str]) -> tuple[Row, ...]:
    rows = (row(f"K{i:04}", use="calibration", **one) for i, one in enumerate(columns))
    return read_rows(write_rows(folder / "rows.csv", *rows))


def test_all_rows_of_a_model_are_left_out_together(tmp_path: Path) -> None:
    """Two rows of one model do not predict one another."""
    first = {"workload": "1D reduce", "value": "10"}
    other = {"workload": "2D reduce", "value": "40"}
    found = evaluate(FIT, _rows(tmp_path, first, first, other))
    assert found.constants == {"hop_cycles": 20}
    assert [one.error for one in found.rows] == pytest.approx([1, 1, -0.5])
    assert [one.left_out for one in found.rows] == pytest.approx([3, 3, -0.75])
    assert "3 rows of 2 models" in found.summary


def test_only_model_cannot_be_left_out(tmp_path: Path) -> None:
    """Nothing would remain to fit to."""
    found = evaluate(FIT, _rows(tmp_path, {"value": "10"}))
    assert [one.left_out for one in found.rows] == [None]
    assert found.summary.endswith("no model can be left out")
