"""``python -m validation.fit`` fits the calibration rows of one family and prints constants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.timing.reference_rows import constant, row, write_rows
from validation.families.prediction import Family
from validation.families.registry import FAMILIES as ALL_FAMILIES
from validation.fit.__main__ import main
from validation.fit.calibration import Fit
from validation.fit.registry import FITS as ALL_FITS
from validation.report.summary import belongs

FAMILIES = [constant("collectives 1D", "1D reduce", 100.0), constant("GEMM", "GEMM", 1.0)]
FITS = [
    Fit(
        "collectives",
        lambda rows: {"hop_cycles": sum(float(row.value) for row in rows)},
        lambda _, constants: constants["hop_cycles"],
    )
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two rows to fit, one to check, one of another family."""
    return write_rows(
        tmp_path / "rows.csv",
        row("K0001", use="calibration", value="80"),
        row("K0002", use="calibration", value="40"),
        row("K0003", use="validation", value="1000"),
        row("K0004", use="calibration", workload="GEMM", value="9"),
    )


def _run(
    path: Path,
    *arguments: str,
    family: str = "collectives",
    families: Sequence[Family] = FAMILIES,
) -> int:
    return main(["--rows", str(path), "--family", family, *arguments], families, FITS)


def test_fits_belong_to_families() -> None:
    """A fit without a family would never get a row."""
    for fit in ALL_FITS:
        assert any(belongs(family.name, fit.family) for family in ALL_FAMILIES), fit.family


def test_all_families_and_the_rule_are_printed_by_default(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made-up rows are fitted; the rule is about the constants in use and the committed rows."""
    main(["--rows", str(path)], FAMILIES, FITS)
    out = capsys.readouterr().out
    assert "no model can be left out" in out
    assert "of 18 at most" in out
    assert "CS2.kernel_efficiency" in out


def test_fit_gets_the_calibration_rows_of_its_family(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """80 + 40 and nothing else; beside it the value in use, and the error of every fitted row."""
    assert _run(path) == 0
    out = capsys.readouterr().out
    for text in ("hop_cycles", " 120 ", "WSE2 1", "+50.0 %"):
        assert text in out
    assert "K0003" not in out
    assert "K0004" not in out


def test_rows_belong_to_the_first_family_that_knows_them(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here as in the report."""
    others = [constant("other", "1D reduce", 1.0), *FAMILIES]
    assert _run(path, families=others) == 1
    assert "[no-calibration-row]" in capsys.readouterr().err


def test_row_ids_select_rows(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fit to fewer rows shows how much the constants depend on one of them."""
    for ids in (["K0002"], ["K0002", "K0002"]):
        assert _run(path, "--row_ids", *ids) == 0
        assert " 40 " in capsys.readouterr().out


def test_row_ids_need_a_family(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of all families are never chosen at once."""
    with pytest.raises(SystemExit, match="2"):
        main(["--rows", str(path), "--row_ids", "K0002"], FAMILIES, FITS)
    assert "--row_ids requires --family" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "family", "code"),
    [
        (("--row_ids", "K0001", "K0003"), "collectives", "[row-not-calibration]"),
        (("--row_ids", "K0004"), "collectives", "[unknown-row]"),
        ((), "colectives", "[unknown-family]"),
    ],
)
def test_wrong_arguments_are_refused(
    path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    family: str,
    code: str,
) -> None:
    """A row that is not calibration, a row of another family, a family without a fit."""
    assert _run(path, *arguments, family=family) == 1
    captured = capsys.readouterr()
    assert code in captured.err
    assert captured.out == ""
