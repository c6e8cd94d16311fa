"""Curves of training runs, efficiencies and error bars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path
from statistics import fmean

import pytest

from tests.support.errors import raises
from tests.support.summaries import DIGEST, run_curve, summary, with_digest
from waferstream.reports.curve import ERROR_BARS, ErrorBar, efficiencies
from wsc.core.errors import WaferStreamError

FIDELITY = Path(__file__).parents[4] / "docs" / "fidelity.md"


def test_efficiencies_are_relative_to_the_first_point() -> None:
    assert efficiencies([2, 4, 8], [10.0, 20.0, 30.0]) == pytest.approx([1.0, 1.0, 0.75])


def test_curve_of_runs_is_sorted_and_has_both_efficiencies() -> None:
    """A reduce as long as the compute of eight systems halves their throughput."""
    result = run_curve(summary(8, reduce_ps=1_000_000), summary(2))
    assert [point.num_csx for point in result.points] == [2, 8]
    assert [point.efficiency for point in result.points] == pytest.approx([1.0, 0.5])
    measured = [point.run.efficiency for point in result.points if point.run]
    assert measured == pytest.approx([1.0, 0.25])


def test_curve_of_runs_has_one_digest_if_all_runs_agree() -> None:
    same = run_curve(summary(1), summary(2)).training
    different = run_curve(summary(1), with_digest(summary(2), "cd")).training
    assert same is not None
    assert different is not None
    assert (same.weights_sha256, different.weights_sha256) == (DIGEST, None)
    assert same.num_steps == 10


@pytest.mark.parametrize(
    "lack", [{"status": "failed"}, {"weights_sha256": None}, {"measured": None}, {"emulated": None}]
)
def test_curve_of_runs_refuses_an_incomplete_run(lack: dict[str, str | None]) -> None:
    with raises(WaferStreamError, "run-not-completed") as caught:
        run_curve(summary(1), replace(summary(2), **lack))  # type: ignore[arg-type]
    assert "num_csx=2" in caught.value.what


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
    low, high = ErrorBar("CS-2", 10, 0.1, 0.25, 0.5).around(75.0)
    assert low * 1.25 == pytest.approx(75)
    assert high * 0.75 == pytest.approx(75)
