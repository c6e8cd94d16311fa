"""EASY back-fill, on schedules that can be drawn by hand."""

from __future__ import annotations

from benchmarks.queue.easy import easy_starts_s
from waferstream.management.schedule.trace import TraceJob


def jobs(*rows: tuple[float, float, int]) -> list[TraceJob]:
    """Return jobs from submission, run time and systems."""
    return [TraceJob(*row, "ann") for row in rows]


def test_a_job_is_filled_in_where_it_does_not_delay_the_first() -> None:
    trace = jobs((0.0, 100.0, 3), (1.0, 50.0, 4), (2.0, 90.0, 1), (3.0, 200.0, 1))
    assert easy_starts_s(trace, systems=4, groups=4) == [0.0, 100.0, 2.0, 150.0]


def test_a_long_job_may_use_what_the_first_leaves() -> None:
    trace = jobs((0.0, 100.0, 3), (1.0, 50.0, 3), (2.0, 900.0, 1))
    assert easy_starts_s(trace, systems=4, groups=4) == [0.0, 100.0, 2.0]


def test_groups_bound_the_jobs_side_by_side() -> None:
    trace = jobs((0.0, 100.0, 1), (1.0, 50.0, 1))
    assert easy_starts_s(trace, systems=4, groups=1) == [0.0, 100.0]
