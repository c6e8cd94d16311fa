"""Questions about other appliances."""

from __future__ import annotations

import pytest

from waferstream.management.schedule.state import Job, RunTime
from waferstream.management.schedule.what_if import fewest_systems, outcome
from waferstream.management.schedule.workload import uniform

HOUR_S = 3600.0


def jobs(count: int) -> list[Job]:
    """Return jobs of an hour on two systems, all submitted at once, which do not breathe."""
    run_times = {"CS-3": RunTime(((2, HOUR_S),))}
    return [
        Job(f"job-{number}", "ann", 0.0, run_times, 2, 2, resize_s=float("inf"))
        for number in range(count)
    ]


def test_an_outcome_has_waits_and_utilisation() -> None:
    found = outcome(uniform(4, 4), jobs(4))
    assert (found.systems, found.groups) == (4, 4)
    assert found.mean_wait_s == pytest.approx(0.5 * HOUR_S)
    assert found.longest_wait_s == pytest.approx(HOUR_S)
    assert found.mean_turnaround_s == pytest.approx(1.5 * HOUR_S)
    assert found.utilisation == pytest.approx(1.0)


def test_the_fewest_systems_are_found_between_the_least_and_the_most() -> None:
    tried = fewest_systems(jobs(4), mean_wait_s=0.6 * HOUR_S, most=16, groups=16)
    answer = next(found for found in tried if found.mean_wait_s <= 0.6 * HOUR_S)
    assert answer.systems == 4
    assert [found.systems for found in tried] == sorted(found.systems for found in tried)


def test_nothing_is_enough_where_the_most_is_too_few() -> None:
    tried = fewest_systems(jobs(4), mean_wait_s=0.0, most=2, groups=4)
    assert [found.systems for found in tried] == [2]
    assert tried[0].mean_wait_s > 0.0


def test_a_job_that_never_fits_is_an_error() -> None:
    with pytest.raises(ValueError, match="never start: job-0"):
        outcome(uniform(1, 1), jobs(1))
