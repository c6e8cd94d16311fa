"""Decide which queued job starts next; no I/O.

The order is the vendor's (training-docs.cerebras.ai, job-priority): priority, then age. A job does
not overtake one that is ahead of it, even if it would fit. A training takes one MemoryX group, so
their number bounds the trainings that run side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from appliance.jobs.job import ClusterJob, Phase, priority_text
from waferstream.core.config import Config
from waferstream.core.errors import ClusterJobScheduleError

MOST_SYSTEMS = 2048
"""Systems of the largest cluster that the vendor offers (CS-3, announcement of 2024)."""


class QueueSpec(Config):
    """What the runs of a computer share if they queue."""

    systems: int = Field(ge=1, le=MOST_SYSTEMS)
    """CS systems for all runs together."""

    memoryx_groups: int = Field(default=1, ge=1, le=MOST_SYSTEMS)
    """MemoryX groups, of which each run takes one."""


def queued(jobs: Sequence[ClusterJob]) -> list[ClusterJob]:
    """Return the jobs that wait, the next one first."""
    waiting = [job for job in jobs if job.phase is Phase.QUEUED]
    return sorted(waiting, key=lambda job: (job.request.priority, job.created_s, job.name))


def running(jobs: Sequence[ClusterJob]) -> list[ClusterJob]:
    """Return the execute jobs that have systems and a MemoryX group."""
    return [job for job in jobs if job.kind == "execute" and job.phase.holds_systems]


def scheduled(name: str, jobs: Sequence[ClusterJob], spec: QueueSpec, time_s: float) -> ClusterJob:
    """Return a queued job out of the queue, or with the reason why it waits.

    Arguments and errors are those of ``waiting_reason``; ``time_s`` is now.
    """
    job = next(each for each in jobs if each.name == name)
    reason = waiting_reason(name, jobs, spec)
    phase = Phase.SCHEDULED if reason is None else Phase.QUEUED
    return job.moved(phase, time_s, reason or "")


def waiting_reason(name: str, jobs: Sequence[ClusterJob], spec: QueueSpec) -> str | None:
    """Return why a queued job must wait, or None if it may start now.

    Args:
        name: The job, one of ``jobs``.
        jobs: All jobs.
        spec: What they share.

    Raises:
        ClusterJobScheduleError: The job could not run on the empty cluster either.
    """
    line = queued(jobs)
    job = next(each for each in line if each.name == name)
    asked = job.request.num_csx
    if asked > spec.systems:
        raise ClusterJobScheduleError(
            "a job must not ask for more systems than the cluster has",
            code="more-systems-than-cluster",
            where="num_csx, runtime.queue.systems",
            value=asked,
            rule=f"at most {spec.systems}",
            remedy="lower num_csx, or raise runtime.queue.systems of cluster.yaml",
        )
    if line[0] is not job:
        first = line[0]
        return f"{first.name} is ahead with priority {priority_text(first.request.priority)}"
    taken = running(jobs)
    names = ", ".join(each.name for each in taken)
    if len(taken) >= spec.memoryx_groups:
        return f"all MemoryX groups are in use ({spec.memoryx_groups}): {names}"
    free = spec.systems - sum(each.request.num_csx for each in taken)
    if asked > free:
        return f"{asked} CSX requested, {max(0, free)} of {spec.systems} are free: {names}"
    return None
