"""How far the clock has been off."""

import re
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from statistics import fmean

import pytest

from waferstream.reports.error_bars import ERROR_BARS, ErrorBar

REPORT = Path(__file__).parents[4] / "docs" / "fidelity.md"


def published_errors(system: str) -> Iterator[float]:
    """Absolute errors of the validation rows of training on a system, in the fidelity report."""
    chapter = REPORT.read_text().partition(f"### training {system}\n")[2].partition("### ")[0]
    for row in chapter.splitlines():
        if found := re.search(r"\| validation \|.*\| [+-]([0-9.]+) % \|$", row):
            yield float(found[1]) / 100


@pytest.mark.parametrize("bar", ERROR_BARS.values(), ids=ERROR_BARS)
def test_it_is_that_of_the_fidelity_report(bar: ErrorBar) -> None:
    """To the tenth of a percent that the report prints: neither can change without the other."""
    errors = sorted(published_errors(bar.system))
    assert bar.runs == len(errors)
    assert bar.mean == pytest.approx(fmean(errors), abs=5e-4)
    assert bar.nine_of_ten == pytest.approx(errors[ceil(0.9 * len(errors)) - 1], abs=5e-4)
    assert bar.worst == pytest.approx(errors[-1], abs=5e-4)


def test_a_system_without_a_bar_has_no_run_to_check_against() -> None:
    """A bar that could be had is not left out."""
    systems = {system for system in ("CS-2", "CS-3") if list(published_errors(system))}
    assert systems == set(ERROR_BARS)


def test_a_measured_rate_lies_between_what_either_error_would_make_of_it() -> None:
    """A prediction that is 25 % too high or too low, seen from the prediction."""
    low, high = ErrorBar("CS-2", 10, 0.1, 0.25, 0.5).around(75.0)
    assert low * 1.25 == pytest.approx(75)
    assert high * 0.75 == pytest.approx(75)
