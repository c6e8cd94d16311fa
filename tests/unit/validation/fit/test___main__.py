"""Constants are fitted to calibration rows and never to others."""

import pytest

from tests.support.reference_rows import constant, row, write_rows
from validation.families.replay import CannotReplay, Fit
from validation.fit.__main__ import calibrate, main
from validation.rows.row import read_rows
from wsc.core.errors import ConfigError

FAMILIES = [constant("collectives 1D", "1D reduce", 100.0), constant("GEMM", "GEMM", 1.0)]
FITS = [Fit("collectives", lambda rows: {"hop_cycles": sum(row.value for row in rows)})]


@pytest.fixture
def path(tmp_path):
    """Two rows to fit, one to check, one of another family."""
    return write_rows(
        tmp_path / "rows.csv",
        row("K0001", use="calibration", value="80"),
        row("K0002", use="calibration", value="40"),
        row("K0003", use="validation", value="1000"),
        row("K0004", use="calibration", workload="GEMM", value="9"),
    )


def run(path, *arguments, family="collectives"):
    return main(["--rows", str(path), "--family", family, *arguments], FAMILIES, FITS)


def test_a_fit_is_given_the_calibration_rows_of_its_family(path, capsys):
    """80 + 40 and nothing else; beside it the value in use, and the error of every row used."""
    assert run(path) == 0
    out = capsys.readouterr().out
    assert "hop_cycles" in out
    assert " 120 " in out
    assert "WSE2 1" in out
    assert "+25.0 %" in out
    assert "K0003" not in out
    assert "K0004" not in out


def test_a_row_that_an_earlier_family_knows_is_not_fitted(path, capsys):
    """A row belongs to the first family that knows it, here as in the report."""
    others = [constant("refused", "1D reduce", 1.0), *FAMILIES]
    arguments = ["--rows", str(path), "--family", "collectives"]
    assert main(arguments, others, FITS) == 1
    assert "nothing to fit to" in capsys.readouterr().err


def test_rows_can_be_chosen(path, capsys):
    """A fit to fewer rows shows how far the constants hang on one of them."""
    assert run(path, "--row_ids", "K0002") == 0
    assert " 40 " in capsys.readouterr().out


def test_a_row_that_is_not_calibration_is_refused(path, capsys):
    """By name, file and field, before anything is fitted."""
    assert run(path, "--row_ids", "K0001", "K0003") == 1
    captured = capsys.readouterr()
    assert "row K0003, field use" in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("use", ["validation", "context"])
def test_no_caller_can_fit_to_other_rows(tmp_path, use):
    """The refusal stands in the one way to a fit, not in the command line."""
    rows = read_rows(write_rows(tmp_path / "rows.csv", row(use=use)))
    with pytest.raises(ConfigError, match="must not be fitted"):
        calibrate(FITS[0], rows)


def test_a_fit_needs_rows(tmp_path, capsys):
    """A file without calibration rows of the family says so."""
    assert run(write_rows(tmp_path / "rows.csv", row())) == 1
    assert "nothing to fit" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["464 to 584", "0", "-5"])
def test_a_row_without_a_positive_number_is_not_fitted(tmp_path, capsys, value):
    """A range as text is no value, and nothing takes no time or less."""
    path = write_rows(tmp_path / "rows.csv", row(use="calibration", value=value))
    assert run(path) == 1
    assert "row K0001, field value" in capsys.readouterr().err


def test_a_row_that_leaves_too_much_unsaid_is_told(path, capsys):
    """The reason of the model is the error, not a stack trace."""

    def fit(rows):
        raise CannotReplay("the row gives no K")

    arguments = ["--rows", str(path), "--family", "collectives"]
    assert main(arguments, FAMILIES, [Fit("collectives", fit)]) == 1
    assert "the row gives no K" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "family", "message"),
    [
        (("--row_ids", "K0004"), "collectives", "no such row in the family"),
        ((), "colectives", "did you mean 'collectives'"),
    ],
)
def test_an_unknown_name_is_refused(path, capsys, arguments, family, message):
    """A row of another family, or a family that has no fit."""
    assert run(path, *arguments, family=family) == 1
    assert message in capsys.readouterr().err
