"""Rates of samples on the host."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest

from waferstream_compat.utils import rates


def test_rates_follow_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count(step=1)  # every look at the clock is a second later
    clock = SimpleNamespace(perf_counter=lambda: float(next(seconds)))
    monkeypatch.setattr(rates, "time", clock)
    tracker = rates.RateTracker(smoothing_factor=0.5)  # at 0
    assert tracker.rate() == 0  # at 1
    tracker.add(10)
    assert tracker.rate() == 5  # 10 samples in 2 seconds
    tracker.add(11)
    assert tracker.rate() == 8  # half of 11 and half of 5
    assert tracker.total_count == 21
    assert tracker.global_rate() == 21 / 4
    tracker.reset()
    assert (tracker.total_count, tracker.rate()) == (0, 0)
