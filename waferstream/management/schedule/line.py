"""The order in which jobs wait: the bound, priority, length, and what their users have had."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from waferstream.management.schedule.state import Job, Rules, Usage

_MOST_DOUBLINGS = 3.0
"""A user far above the fair share waits like one with jobs 2 to this power as long."""


def used(usage: Usage, now_s: float, running: Iterable[Job], rules: Rules) -> Usage:
    """Return the usage of all users at a later time; ``running`` held what they hold till then."""
    passed_s = max(0.0, now_s - usage.at_s)
    kept = 0.5 ** (passed_s / rules.half_life_s)
    system_s = {user: kept * had for user, had in usage.system_s.items()}
    for job in running:
        system_s[job.user] = system_s.get(job.user, 0.0) + len(job.holds) * passed_s
    return Usage(now_s, system_s)


def overdue(job: Job, now_s: float, rules: Rules) -> bool:
    """Return whether a job has waited beyond the bound."""
    return job.waits_since_s < now_s - rules.bound_s


def run_s(job: Job) -> float:
    """Return the predicted seconds that remain of a job on all systems that it asks for."""
    return job.left * next(iter(job.run_times.values())).seconds(job.num_csx)


def place_in_line(
    now_s: float, usage: Usage, rules: Rules
) -> Callable[[Job], tuple[int, float, float, float]]:
    """Return the key by which waiting jobs are sorted, the next one first.

    Jobs beyond the bound come first, those that have never started before those that were paused.
    Others follow by priority, then by predicted time, doubled for every fair share that their user
    has had beyond the first.
    """
    fair_s = sum(usage.system_s.values()) / max(1, len(usage.system_s))
    overdue_since_s = now_s - rules.bound_s
    weights = {
        user: 2.0 ** min(_MOST_DOUBLINGS, max(0.0, had_s / fair_s - 1.0))
        for user, had_s in usage.system_s.items()
        if had_s
    }

    def key(job: Job) -> tuple[int, float, float, float]:
        if job.waits_since_s < overdue_since_s:
            return 0, float(job.left < 1.0), job.waits_since_s, 0.0
        return 1, job.priority, weights.get(job.user, 1.0) * run_s(job), job.submitted_s

    return key
