"""Curves of training runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.errors import raises
from tests.support.reports.summaries import DIGEST, INTERVAL, run_curve, summary, with_digest
from waferstream.core.errors import WaferStreamError


def test_curve_of_runs_is_sorted_and_has_both_efficiencies() -> None:
    """A reduce as long as the compute of eight systems halves their throughput."""
    result = run_curve(summary(8, reduce_ps=1_000_000), summary(2))
    assert [point.num_csx for point in result.points] == [2, 8]
    assert [point.efficiency for point in result.points] == pytest.approx([1.0, 0.5])
    measured = [point.run.efficiency for point in result.points if point.run]
    assert measured == pytest.approx([1.0, 0.25])


def test_curve_of_runs_keeps_their_intervals() -> None:
    run = replace(summary(1), interval=INTERVAL)
    assert run_curve(run).intervals == {1: INTERVAL}


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
