"""Intervals of rows follow from other models, cover what they name, and are kept up to date."""

from __future__ import annotations

from math import exp

import pytest

from validation.families import gpu, inference, kernels, service
from validation.families.prediction import Compared, Predictions
from validation.report.intervals import coverage_table, group_of, judged, residuals_of
from validation.report.report import calibrated_rows
from validation.rows.reader import PUBLISHED, read_rows
from validation.rows.row import Row
from waferstream.machine.intervals import RESIDUALS, Interval, Residuals, Unknown

_CHEAP = (*kernels.FAMILIES, *inference.FAMILIES, *service.FAMILIES, *gpu.FAMILIES)
"""Families that need no captured model."""


def _compared(row_id: str, ratio: float, use: str = "validation", **fields: str) -> Compared:
    row = Row("kernels", "f", 2, row_id, use, 1.0, "cycles", "simulator", _FIELDS | fields)  # type: ignore[arg-type]
    return Compared(row, "collectives", 1.0, ratio)


_FIELDS = dict.fromkeys(("num_pes", "vector_len", "M", "K", "N", "algorithm"), "") | {
    "system": "WSE-2",
    "workload": "reduce",
}


def test_rows_of_cheap_families_in_the_file_are_those_that_the_command_writes() -> None:
    """After a change of a constant: ``python -m validation --residuals``."""
    rows = [row for path in PUBLISHED for row in read_rows(path)]
    found = residuals_of(Predictions.of(rows, _CHEAP).compared, calibrated_rows())
    families = {family.name for family in _CHEAP}
    written = [row for row in Residuals.read(RESIDUALS).rows if row.setting.family in families]
    assert sorted(row.row for row in found.rows) == sorted(row.row for row in written)
    by_id = {row.row: row for row in written}
    for row in found.rows:
        kept = by_id[row.row]
        assert (row.setting, row.model, row.group) == (kept.setting, kept.model, kept.group)
        assert row.log_ratio == pytest.approx(kept.log_ratio, abs=1e-3)
        assert row.decades == pytest.approx(kept.decades, abs=1e-3)


def test_residuals_keep_calibrated_rows_and_errors_of_validation_rows() -> None:
    """A calibration row on which no constant rests says nothing."""
    rows = [
        _compared("K1", 1.0, "calibration", num_pes="10"),
        _compared("K2", 2.0, "calibration", num_pes="10"),
        _compared("K3", exp(0.25), num_pes="1000"),
    ]
    found = residuals_of(rows, {"K1"})
    assert [(row.row, row.log_ratio, row.decades) for row in found.rows] == [
        ("K1", None, 0.0),
        ("K3", 0.25, 2.0),
    ]


def test_the_own_model_of_a_row_does_not_widen_its_interval() -> None:
    """A row that the residuals do not contain takes all of them."""
    rows = [
        _compared("K1", 1.0, "calibration"),
        *(_compared(f"K2{index}", exp(0.01), workload=f"w{index}") for index in range(20)),
        *(_compared(f"K3{index}", exp(3.0), workload="odd") for index in range(20)),
    ]
    residuals = residuals_of(rows, {"K1"})
    own, other = judged([rows[-1], _compared("K9", 1.0, workload="odd")], residuals)
    assert isinstance(own.interval, Interval)
    assert isinstance(other.interval, Interval)
    assert own.interval.nine_tenths < exp(0.1) < other.interval.nine_tenths
    assert not own.is_covered("nine_tenths")
    assert other.is_covered("nine_tenths")


def test_coverage_counts_validation_rows_and_unknown_intervals() -> None:
    rows = [
        _compared("K1", 1.0, "calibration"),
        *(_compared(f"K2{index}", exp(0.01), workload=f"w{index}") for index in range(9)),
    ]
    elsewhere = _compared("K9", 1.0, system="WSE-9")
    table = coverage_table(judged([*rows, elsewhere], residuals_of(rows, {"K1"})))
    assert [(line[0], line[1], line[-1]) for line in table.rows] == [
        ("kernels", "10", "1"),
        ("all", "10", "1"),
    ]


def test_no_row_of_an_unmeasured_machine_is_covered() -> None:
    (row,) = judged([_compared("K9", 1.0)], Residuals(()))
    assert isinstance(row.interval, Unknown)
    assert not row.is_covered("nine_tenths")


@pytest.mark.parametrize(
    ("family", "group"),
    [
        ("training CS-3", "training"),
        ("GPU training FSDP", "GPU training"),
        ("GPU inference decode", "GPU inference"),
        ("decode", "inference"),
        ("start-up checkpoint", "start-up"),
        ("collectives", "kernels"),
    ],
)
def test_families_with_errors_of_one_shape_are_a_group(family: str, group: str) -> None:
    assert group_of(family) == group
