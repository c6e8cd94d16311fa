"""Predictions of what users of the vendor's service saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.timing.reference_rows import published_rows, row, write_rows
from validation.families.prediction import Predictions
from validation.families.service import FAMILIES
from validation.rows.reader import read_rows

SPEED = {"quantity": "decode speed of one user", "unit": "output tokens/s/user"}


def _served(row_id: str, model: str, **fields: str) -> dict[str, str]:
    """Return a row of the service."""
    given = {"measured_on": "2026", "use": "validation", "value": "1", **fields}
    return row(row_id, "service", workload=model, **given)


def _predictions(tmp_path: Path, *rows: dict[str, str]) -> Predictions:
    return Predictions.of(read_rows(write_rows(tmp_path / "rows.csv", *rows)), FAMILIES)


def test_calibration_rows_are_met() -> None:
    """One factor for each generation, and the acceptance of drafts."""
    rows = published_rows("inference service", FAMILIES, "calibration")
    assert {"I0001", "I0005", "I0011"} <= {each.row_id for each in rows}
    assert all(abs(one.error) < 0.02 for one in Predictions.of(rows, FAMILIES).compared)


def test_rows_of_2024_have_neither_drafts_nor_later_kernels(tmp_path: Path) -> None:
    """The same model was three times as fast some months later."""
    early = _served("I0001", "Llama 3.1 70B", measured_on="2024-09/10", **SPEED)
    late = _served("I0002", "Llama 3.1 70B", measured_on="2024-10-24", **SPEED)
    first, later = (one.predicted for one in _predictions(tmp_path, early, late).compared)
    assert later > 3 * first


def test_requests_name_their_tokens(tmp_path: Path) -> None:
    """A time to the first token needs the length of the prompt."""
    quantity = "request of 10,000 input and 500 output tokens"
    known = _served("I0001", "Kimi K2.6", quantity=quantity, unit="s")
    unknown = _served("I0002", "Llama 3.3 70B", quantity="time to first token", unit="s")
    found = _predictions(tmp_path, known, unknown)
    (request,) = found.compared
    assert 0.1 < request.predicted < 10
    assert [one.code for one in found.skipped] == ["prompt-not-stated"]


@pytest.mark.parametrize(
    ("model", "fields", "code"),
    [
        ("Gemma 4 31B", SPEED, "decoder-unknown"),
        ("any", {"quantity": "idle power", "unit": "% of rated"}, "nothing-predicts-it"),
        ("any", {"quantity": "wafer-to-wafer hop", "unit": "us"}, "nothing-predicts-it"),
    ],
)
def test_rows_are_skipped_with_the_reason(
    tmp_path: Path, model: str, fields: dict[str, str], code: str
) -> None:
    """Neither a guess nor silence."""
    (skipped,) = _predictions(tmp_path, _served("I0001", model, **fields)).skipped
    assert skipped.code == code
