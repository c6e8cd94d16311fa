"""Every row is compared, listed or failed, and a prediction cannot see what was measured."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.reference_rows import constant, refusing, row, write_rows
from validation.families.registry import FAMILIES, FITS
from validation.families.replay import Family
from validation.families.replays import Replays
from validation.report.summary import belongs
from validation.rows.columns import COLUMNS, RESULTS
from validation.rows.row import read_rows
from validation.rows.what import what


def read(tmp_path, *rows):
    return read_rows(write_rows(tmp_path / "rows.csv", *rows))


def test_the_error_is_signed_and_relative(tmp_path):
    """90 predicted of 100 published is -10 %."""
    (one,) = Replays.of(read(tmp_path, row()), [constant("a", "1D reduce", 90.0)]).compared
    assert (one.family, one.predicted, one.published) == ("a", 90.0, 100.0)
    assert one.error == pytest.approx(-0.1)


def test_the_first_family_that_knows_a_row_predicts_it(tmp_path):
    """Families are asked in order."""
    families = [constant("b", "GEMM", 1.0), constant("c", "1D reduce", 2.0)]
    families.append(constant("d", "1D reduce", 3.0))
    (one,) = Replays.of(read(tmp_path, row()), families).compared
    assert one.family == "c"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"workload": "quantum"}, "no model for quantum"),
        ({"value": "2+2*(n/8)"}, "not a number: 2+2*(n/8)"),
        ({"value": "0"}, "not positive"),
        ({"num_pes": "many"}, "field num_pes"),
        ({"workload": "GEMM"}, "no shape is given"),
    ],
)
def test_a_row_that_cannot_be_compared_is_listed_with_the_reason(tmp_path, fields, reason):
    """No model, no number, a cell that cannot be read, or what the replay itself says."""
    families = [
        refusing("GEMM", "GEMM", "no shape is given"),
        Family(
            "reduce",
            lambda row: row.text("workload") == "1D reduce",
            lambda row: float(row.integer("num_pes") or 1),
        ),
    ]
    replays = Replays.of(read(tmp_path, row(**fields)), families)
    (listed,) = replays.listed
    assert reason in listed.reason
    assert not replays.compared
    assert not replays.failed


def test_a_replay_that_breaks_is_a_bug_and_the_other_rows_are_still_replayed(tmp_path):
    """A crash while a row is recognised or predicted is kept with its trace."""
    rows = read(tmp_path, row(workload="x"), row("K0002"), row("K0003", workload="y"))
    families = [
        Family("breaks", lambda row: row.text("workload") == "x", lambda row: 1 / 0),
        Family(
            "asks", lambda row: row.text("workload") == "y" and row.text("no such column"), float
        ),
        constant("works", "1D reduce", 100.0),
    ]
    replays = Replays.of(rows, families)
    assert [(bug.row.row_id, bug.family) for bug in replays.failed] == [
        ("K0001", "breaks"),
        ("K0003", None),
    ]
    assert "ZeroDivisionError" in replays.failed[0].bug
    assert [one.row.row_id for one in replays.compared] == ["K0002"]


@pytest.mark.parametrize("predicted", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_prediction_that_is_no_quantity_is_a_bug(tmp_path, predicted):
    """Nothing published is zero, negative or endless, so no prediction may be."""
    rows = read(tmp_path, row())
    (bug,) = Replays.of(rows, [constant("a", "1D reduce", predicted)]).failed
    assert str(predicted) in bug.bug


@given(st.lists(st.sampled_from(["1D reduce", "GEMM", "GEMV", "FFT"]), min_size=1, max_size=20))
def test_no_row_is_lost(tmp_path_factory, workloads):
    """Every row has exactly one outcome."""
    rows = read(
        tmp_path_factory.mktemp("rows"),
        *(row(f"K{index}", workload=workload) for index, workload in enumerate(workloads)),
    )
    families = [
        constant("a", "1D reduce", 1.0),
        refusing("b", "GEMM", "no"),
        Family("c", lambda row: row.text("workload") == "GEMV", lambda row: 1 / 0),
    ]
    replays = Replays.of(rows, families)
    outcomes = [*replays.compared, *replays.listed, *replays.failed]
    assert Counter(one.row.row_id for one in outcomes) == Counter(one.row_id for one in rows)


def test_a_prediction_does_not_change_with_what_was_measured(tmp_path):
    """A replay that reads all it can still predicts the same when every result is altered."""

    def read_everything(row):
        return 1.0 + sum(map(ord, f"{row.value}{row.unit}{sorted(row.fields.items())}"))

    families = [Family("curious", lambda row: True, read_everything)]
    for kind in ("kernels", "training", "gpu"):
        (plain,) = read(tmp_path, row(kind=kind))
        told = {column: "123" for column in RESULTS if column in plain.fields}
        altered = replace(plain, value=123.0, fields={**plain.fields, **told})
        before, after = Replays.of([plain, altered], families).compared
        assert before.predicted == after.predicted
        assert before.published != after.published


@pytest.mark.parametrize("kind", COLUMNS)
def test_every_family_can_be_asked_about_every_kind_of_row(tmp_path, kind):
    """A row of any kind is recognised or not; no family trips over columns it does not have."""
    rows = read(tmp_path, row("R1", kind), row("R2", kind, workload="decode, reduce, MPT, GEMM"))
    for family in FAMILIES:
        for one in rows:
            family.knows(one.described())


def test_every_fit_is_that_of_a_family():
    """A fit whose family no row belongs to would never be given a row."""
    for fit in FITS:
        assert any(belongs(family.name, fit.family) for family in FAMILIES), fit.family


def test_a_row_is_told_in_a_few_words(tmp_path):
    """Workload and shape; empty cells leave no trace."""
    (kernel,) = read(tmp_path, row(system="CS-2", algorithm="chain", num_pes="512"))
    assert what(kernel) == "CS-2: 1D reduce chain P=512"
    (gpu,) = read(tmp_path, row(kind="gpu", gpu="H100", n_gpus="8", workload="MPT 7b"))
    assert what(gpu) == "H100 x 8: MPT 7b"
