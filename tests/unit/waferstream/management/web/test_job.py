"""The curves of a job and where its time goes."""

from __future__ import annotations

import pytest

from waferstream.management.model.event import Event, Progressed, Waits
from waferstream.management.model.telemetry import Sample, Telemetry
from waferstream.management.model.workflow import Progress
from waferstream.management.web.job import MOST_POINTS, points, shares


def event(number: int, step: int) -> Event:
    progress = Progress(step=step, total_steps=10**6, loss=1 / step, samples_per_s=2.0)
    return Event(number=number, time_s=0.0, workflow="w", fact=Progressed(progress=progress))


def test_steps_that_run_again_count_once() -> None:
    events = [event(1, 10), event(2, 20), event(3, 30), event(4, 20), event(5, 30)]
    waits = Event(number=6, time_s=0.0, workflow="w", fact=Waits(reason="paused"))
    assert [each.step for each in points([*events, waits])] == [10, 20, 30]


def test_long_curve_keeps_its_last_point() -> None:
    curve = points(event(number, number) for number in range(1, 5 * MOST_POINTS + 3))
    assert len(curve) <= MOST_POINTS + 1
    assert curve[-1].step == 5 * MOST_POINTS + 2


def test_shares_are_of_all_systems() -> None:
    told = {("csx-0", "compute"): 3.0, ("csx-1", "compute"): 1.0, ("csx-1", "idle"): 4.0}
    samples = [
        Sample(metric="role_seconds_total", value=value, labels=labels)
        for labels, value in told.items()
    ]
    compute, idle = shares(Telemetry(samples=tuple(samples)))
    assert (compute.x, compute.percent, compute.seconds) == pytest.approx((0, 50, 2))
    assert (idle.x, idle.percent, idle.seconds) == pytest.approx((50, 50, 2))
