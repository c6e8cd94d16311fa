"""Every row is compared, skipped or failed, and predictions see no result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.timing.reference_rows import constant, refusing, row, write_rows
from validation.families.prediction import Compared, Failed, Family, Predictions, Skipped
from validation.families.registry import FAMILIES
from validation.rows.reader import read_rows
from validation.rows.row import COLUMNS, RESULTS, Kind, Row


def _read(folder: Path, *rows: dict[str, str]) -> Sequence[Row]:
    return read_rows(write_rows(folder / "rows.csv", *rows))


def _fail(_: Row) -> float:
    raise ZeroDivisionError


def test_error_is_signed_and_relative(tmp_path: Path) -> None:
    """90 predicted of 100 published is -10 %."""
    (one,) = Predictions.of(_read(tmp_path, row()), [constant("a", "1D reduce", 90.0)]).compared
    assert (one.family, one.predicted, one.published) == ("a", 90.0, 100.0)
    assert one.error == pytest.approx(-0.1)


def test_first_family_that_knows_a_row_predicts_it(tmp_path: Path) -> None:
    """Families are asked in order."""
    families = [constant("b", "GEMM", 1.0), constant("c", "1D reduce", 2.0)]
    families.append(constant("d", "1D reduce", 3.0))
    (one,) = Predictions.of(_read(tmp_path, row()), families).compared
    assert one.family == "c"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"workload": "quantum"}, "no-family"),
        ({"value": "2+2*(n/8)"}, "value-not-a-number"),
        ({"value": "0"}, "value-not-positive"),
        ({"num_pes": "many"}, "column-not-a-number"),
        ({"workload": "GEMM"}, "refused"),
    ],
)
def test_rows_that_cannot_be_compared_are_skipped(
    tmp_path: Path, fields: dict[str, str], code: str
) -> None:
    """No model, no number, a column that cannot be read, or the reason of the family."""
    families = [
        refusing("GEMM", "GEMM", "no shape is given"),
        Family(
            "reduce",
            lambda row: row.text("workload") == "1D reduce",
            lambda row: float(row.integer("num_pes") or 1),
        ),
    ]
    predictions = Predictions.of(_read(tmp_path, row(**fields)), families)
    (skipped,) = predictions.skipped
    assert skipped.code == code
    assert not predictions.compared
    assert not predictions.failed


def test_predictions_that_raise_are_failed_and_others_continue(tmp_path: Path) -> None:
    """A crash while a row is recognised or predicted is kept with its trace."""
    rows = _read(tmp_path, row(workload="x"), row("K0002"), row("K0003", workload="y"))
    families = [
        Family("breaks", lambda row: row.text("workload") == "x", _fail),
        Family(
            "asks",
            lambda row: row.text("workload") == "y" and bool(row.text("no such column")),
            lambda _: 1.0,
        ),
        constant("works", "1D reduce", 100.0),
    ]
    predictions = Predictions.of(rows, families)
    assert [(bug.row.row_id, bug.family) for bug in predictions.failed] == [
        ("K0001", "breaks"),
        ("K0003", None),
    ]
    assert "ZeroDivisionError" in predictions.failed[0].bug
    assert [one.row.row_id for one in predictions.compared] == ["K0002"]


@pytest.mark.parametrize("predicted", [float("nan"), float("inf"), 0.0, -1.0])
def test_predictions_must_be_finite_and_positive(tmp_path: Path, predicted: float) -> None:
    """Anything else is a bug."""
    rows = _read(tmp_path, row())
    (bug,) = Predictions.of(rows, [constant("a", "1D reduce", predicted)]).failed
    assert str(predicted) in bug.bug


@given(st.lists(st.sampled_from(["1D reduce", "GEMM", "GEMV", "FFT"]), min_size=1, max_size=20))
def test_predictions_hold_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, workloads: list[str]
) -> None:
    """Every row has exactly one outcome."""
    rows = _read(
        tmp_path_factory.mktemp("rows"),
        *(row(f"K{index}", workload=workload) for index, workload in enumerate(workloads)),
    )
    families = [
        constant("a", "1D reduce", 1.0),
        refusing("b", "GEMM", "no"),
        Family("c", lambda row: row.text("workload") == "GEMV", _fail),
    ]
    predictions = Predictions.of(rows, families)
    outcomes: list[Compared | Skipped | Failed] = [
        *predictions.compared,
        *predictions.skipped,
        *predictions.failed,
    ]
    assert Counter(one.row.row_id for one in outcomes) == Counter(one.row_id for one in rows)


def test_predictions_do_not_depend_on_results(tmp_path: Path) -> None:
    """A family that reads every column predicts the same when every result is altered."""

    def read_everything(row: Row) -> float:
        return 1.0 + sum(map(ord, f"{row.value}{row.unit}{sorted(row.fields.items())}"))

    families = [Family("curious", lambda row: True, read_everything)]
    kinds: tuple[Kind, ...] = ("kernels", "training", "gpu")
    for kind in kinds:
        (plain,) = _read(tmp_path, row(kind=kind))
        results = {column: "123" for column in RESULTS if column in plain.fields}
        altered = replace(plain, value=123.0, fields={**plain.fields, **results})
        before, after = Predictions.of([plain, altered], families).compared
        assert before.predicted == after.predicted
        assert before.published != after.published


@pytest.mark.parametrize("kind", COLUMNS)
def test_families_accept_every_kind_of_row(tmp_path: Path, kind: Kind) -> None:
    """No family reads a column that the kind of row does not have."""
    rows = _read(tmp_path, row("R1", kind), row("R2", kind, workload="decode, reduce, MPT, GEMM"))
    for family in FAMILIES:
        for one in rows:
            family.knows(one.described())
