"""Exposure: every moment counts for the most useful activity of any role."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.streaming.exposure import Bar, bars_of, exposure_of
from waferstream.core.roles.activities import Interval, Place
from waferstream.machine.trace import Activities, write_trace

US = 1e-6


def test_hidden_activities_are_not_exposed() -> None:
    """By hand: what lies beside kernels does not count; the first step is left out."""
    found = exposure_of(
        [
            Bar("compute", 1, 0, 90),
            Bar("optimizer", 1, 90, 105),
            Bar("compute", 2, 100, 150),
            Bar("compute", 2, 100, 120),
            Bar("casts", 2, 140, 160),
            Bar("sums", 2, 155, 170),
            Bar("optimizer", 2, 180, 200),
        ],
        cores=2,
    )
    assert (found.compute, found.casts, found.sums) == pytest.approx((0.5, 0.05, 0.15))
    assert (found.nothing, found.optimizer) == pytest.approx((0.1, 0.2))
    assert found.busy_lanes == pytest.approx(70 / 100 / 2)
    assert found.step_s == pytest.approx(100 * US)


def test_shares_sum_to_one() -> None:
    bars = [Bar("compute", step, 10.0 * step, 10.0 * step + 7) for step in range(5)]
    found = exposure_of(bars, cores=1)
    assert found.compute + found.nothing == pytest.approx(1.0)
    assert found.optimizer == found.sums == found.casts == 0.0


def test_bars_are_those_of_the_measured_clock(tmp_path: Path) -> None:
    """Kinds of activities, in microseconds; those that say nothing about a step are left out."""
    place = Place("train", 1, 0, "fc1", "forward")
    works = [Interval("compute", 5000, 7000, place), Interval("sum", 7000, 8000, place)]
    measured = {"csx-0": works[:1], "wgt-0": works[1:], "wrk-0": [Interval("load", 0, 9000)]}
    write_trace(tmp_path / "trace.json", Activities(measured=measured))
    assert bars_of(tmp_path / "trace.json") == [
        Bar("compute", 1, 5.0, 7.0),
        Bar("sums", 1, 7.0, 8.0),
    ]
