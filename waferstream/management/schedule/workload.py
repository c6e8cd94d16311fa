"""Jobs from a trace: arrivals compressed to a load, and predictions that are off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log
from random import Random

from waferstream.management.schedule.state import Inventory, Job, RunTime, Session, System
from waferstream.management.schedule.trace import TraceJob


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs, and by which factor each takes longer than predicted."""

    jobs: tuple[Job, ...]
    slower: dict[str, float]


def uniform(systems: int, groups: int, kind: str = "CS-3") -> Inventory:
    """Return an inventory of one session with systems of one kind."""
    named = tuple(System(f"system-{number}", kind) for number in range(systems))
    return Inventory((Session("", named, tuple(f"group-{number}" for number in range(groups))),))


def at_load(trace: Sequence[TraceJob], systems: int, groups: int, load: float) -> list[TraceJob]:
    """Return a trace whose arrivals are compressed, or stretched, to a load.

    The load is that of systems or of groups, whichever is higher, with every job on the systems
    that it asks for; a job that asks for more than there are gets all of them.
    """
    jobs = [replace(job, systems=min(job.systems, systems)) for job in trace]
    span_s = max(job.submitted_s for job in jobs) or 1.0
    of_systems = sum(job.systems * job.run_s for job in jobs) / systems
    of_groups = sum(job.run_s for job in jobs) / groups
    factor = max(of_systems, of_groups) / span_s / load
    return [replace(job, submitted_s=job.submitted_s * factor) for job in jobs]


def workload(
    trace: Sequence[TraceJob],
    *,
    kind: str = "CS-3",
    least_share: float = 0.0,
    resize_s: float = 350.0,
    off_by: float = 1.0,
    seed: int = 0,
) -> Workload:
    """Return the jobs of a trace: each on the systems that it asks for, or on fewer.

    Args:
        trace: What was asked for.
        kind: Of the systems that all jobs run on.
        least_share: The least number of systems, as a share of those asked for; at least one.
        resize_s: Cost of a resize; infinite: sizes are fixed.
        off_by: Predictions are off by a random factor between this and its inverse.
        seed: Of these factors.
    """
    random = Random(seed)
    jobs, slower = [], {}
    for number, traced in enumerate(trace):
        factor = exp(random.uniform(-log(off_by), log(off_by)))
        least = traced.systems if resize_s == inf else round(least_share * traced.systems)
        name = f"job-{number}"
        jobs.append(
            Job(
                name=name,
                user=traced.user,
                submitted_s=traced.submitted_s,
                run_times={kind: RunTime(((traced.systems, traced.run_s / factor),))},
                num_csx=traced.systems,
                min_num_csx=max(1, least),
                resize_s=resize_s,
            )
        )
        slower[name] = factor
    return Workload(tuple(jobs), slower)
