"""Errors of validation rows with and without a mechanism."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.timing.reference_rows import constant, row, write_rows
from validation.ablations.ablation import Ablation, ablate, ablation_table
from validation.ablations.registry import ABLATIONS
from validation.families.prediction import Compared, Predictions
from validation.families.registry import FAMILIES
from validation.report.summary import belongs
from validation.rows.reader import read_rows
from validation.rows.row import CannotPredict, Row


@pytest.fixture
def compared(tmp_path: Path) -> tuple[Compared, ...]:
    """Two validation rows and one of calibration, all predicted as 110."""
    rows = write_rows(
        tmp_path / "rows.csv",
        row("K0001", value="100"),
        row("K0002", value="110"),
        row("K0003", value="90", use="calibration"),
    )
    families = [constant("collectives 1D", "1D reduce", 110.0)]
    return Predictions.of(read_rows(rows), families).compared


def test_validation_rows_are_predicted_without_the_mechanism(
    compared: tuple[Compared, ...],
) -> None:
    """Calibration rows do not count."""
    ablation = Ablation("waits", "nothing waits", "collectives", lambda _: 55.0)
    (found,) = ablate([ablation], compared)
    assert found.complete.mean == pytest.approx(0.05)
    assert found.without.mean == pytest.approx((0.45 + 0.5) / 2)
    assert "47.5 %" in ablation_table([found]).markdown()


def test_rows_that_need_the_mechanism_are_left_out(compared: tuple[Compared, ...]) -> None:
    """Both errors are of the same rows; a family without any has no line."""

    def refuse(row: Row) -> float:
        raise CannotPredict(f"{row.row_id} needs it", code="mechanism-needed")

    assert not list(ablate([Ablation("waits", "", "collectives", refuse)], compared))
    assert not list(ablate([Ablation("waits", "", "GEMM", lambda _: 1.0)], compared))


def test_ablations_concern_families_that_exist() -> None:
    """One without a family would never be seen."""
    for ablation in ABLATIONS:
        assert any(belongs(family.name, ablation.families) for family in FAMILIES), ablation
