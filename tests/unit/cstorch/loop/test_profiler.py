"""Rates: smoothed with weight 0.4 for the newest measurement, and over the whole loop."""

from __future__ import annotations

import pytest

from cstorch.loop.profiler import Profiler, StepRate


def test_rate_is_smoothed() -> None:
    """0.4 of the newest and 0.6 of what was (the vendor's rate tracker)."""
    tracker = StepRate()
    tracker.add(100, 1.0)
    assert tracker.rate == 100
    tracker.add(100, 0.5)
    assert tracker.rate == pytest.approx(0.4 * 200 + 0.6 * 100)


def test_global_rate_is_all_samples_over_all_seconds() -> None:
    """It is not the mean of the rates."""
    tracker = StepRate()
    tracker.add(100, 1.0)
    tracker.add(100, 3.0)
    assert tracker.global_rate == 50
    assert tracker.elapsed_s == 4


def test_rates_are_zero_before_the_first_step() -> None:
    """Progress lines are printed at any time."""
    profiler = Profiler()
    assert profiler.emulated_rate == profiler.rate_tracker.global_rate == 0
