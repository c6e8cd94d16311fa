"""Error bars and the range that they cover are those of the validation rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from statistics import fmean

import pytest

from tests.support.timing.reference_rows import published_rows
from validation.families.training import FAMILIES
from waferstream.reports.evidence import ERROR_BARS, ErrorBar, extrapolations

FIDELITY = Path(__file__).parents[4] / "docs" / "fidelity.md"


def published_errors(system: str) -> Iterator[float]:
    """Yield absolute errors of the validation rows of training, from the fidelity report."""
    chapter = FIDELITY.read_text().partition(f"### training {system}\n")[2].partition("### ")[0]
    for row in chapter.splitlines():
        if found := re.search(r"\| validation \|.*\| [+-]([0-9.]+) % \|$", row):
            yield float(found[1]) / 100


@pytest.mark.parametrize("bar", ERROR_BARS.values(), ids=ERROR_BARS)
def test_error_bar_equals_the_fidelity_report(bar: ErrorBar) -> None:
    """The report prints errors to a tenth of a percent."""
    errors = sorted(published_errors(bar.system))
    assert bar.runs == len(errors)
    assert bar.mean == pytest.approx(fmean(errors), abs=5e-4)
    assert bar.nine_of_ten == pytest.approx(errors[ceil(0.9 * len(errors)) - 1], abs=5e-4)
    assert bar.worst == pytest.approx(errors[-1], abs=5e-4)


def test_error_bars_cover_every_system_with_validation_rows() -> None:
    systems = {system for system in ("CS-2", "CS-3") if list(published_errors(system))}
    assert systems == set(ERROR_BARS)


def test_error_bar_around_inverts_relative_errors() -> None:
    """Predictions that are 25 % too high or too low lead back to the measured rates."""
    low, high = ErrorBar("CS-2", 10, 0.1, 0.25, 0.5, (1, 9), 1).around(75.0)
    assert low * 1.25 == pytest.approx(75)
    assert high * 0.75 == pytest.approx(75)


@pytest.mark.parametrize("bar", ERROR_BARS.values(), ids=ERROR_BARS)
def test_error_bar_covers_the_models_and_systems_of_its_rows(bar: ErrorBar) -> None:
    rows = published_rows(f"training {bar.system}", FAMILIES, use="validation")
    compared = {found[1] for found in re.finditer(r"^\| (T\d+) \|", FIDELITY.read_text(), re.M)}
    rows = [row for row in rows if row.row_id in compared]
    sizes = [1e9 * (row.number("model_params_b") or 0) for row in rows]
    assert (min(sizes), max(sizes)) == pytest.approx(bar.parameters)
    assert max(row.integer("num_csx") or 1 for row in rows) == bar.most_systems


@pytest.mark.parametrize(
    ("system", "parameters", "num_csx", "reasons"),
    [
        ("CS-2", 1.3e9, 1, 0),
        ("CS-2", 1.3e9, 2, 1),
        ("CS-2", 1e12, 1, 1),
        ("CS-2", 3.3e6, 4, 2),
        ("CS-3", 1.3e9, 1, 1),
    ],
)
def test_extrapolations_name_what_no_run_covers(
    system: str, parameters: float, num_csx: int, reasons: int
) -> None:
    """A system without validation rows has no covered point."""
    assert len(extrapolations(system, parameters, num_csx)) == reasons
