"""The jobs of a backend: records for ``run_meta.json`` (section 4.6), their time, their steps."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from waferstream.core.errors import ApplianceRuntimeJobTimeoutError
from waferstream.core.program.program import ProgramKind
from waferstream.management.client.jobs import JobIds


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass
class JobRecord:
    """One compile or execution; fields that do not apply are None."""

    id: str
    workflow_id: str
    start_time: str = field(default_factory=_now)
    end_time: str | None = None
    compile_hash: str | None = None
    is_cached: bool | None = None
    systems: list[str] | None = None

    def end(self) -> None:
        """Note that the job has ended, unless that was noted before."""
        self.end_time = self.end_time or _now()


@dataclass
class JobRecords:
    """The jobs of a backend."""

    compile_jobs: list[JobRecord] = field(default_factory=list)
    execute_jobs: list[JobRecord] = field(default_factory=list)

    def begin_compile(self, ids: JobIds) -> JobRecord:
        """Note the start of a compile."""
        self.compile_jobs.append(JobRecord(ids.name, ids.workflow))
        return self.compile_jobs[-1]

    def begin_execution(self, ids: JobIds, systems: list[str]) -> None:
        """Note the start of a cluster with these systems."""
        self.execute_jobs.append(JobRecord(ids.name, ids.workflow, systems=systems))


class JobTime:
    """The time of one job, from the start of its cluster on.

    Args:
        limit_s: Seconds that it may take; None for any number.
    """

    def __init__(self, limit_s: int | None) -> None:
        self._limit_s = limit_s
        self._ends_at_s = math.inf  # of time.monotonic()

    def begin(self) -> None:
        """Let the time run from now on."""
        self._ends_at_s = time.monotonic() + (self._limit_s or math.inf)

    def check(self) -> None:
        """Raise ApplianceRuntimeJobTimeoutError once the time is over."""
        if time.monotonic() > self._ends_at_s:
            raise ApplianceRuntimeJobTimeoutError(
                "the job ran out of time",
                code="job-time-over",
                where="job_time_sec",
                value=f"{self._limit_s} s",
                remedy="raise it, or run again to continue from the last checkpoint",
            )


@dataclass(frozen=True)
class StepsUnderWay:
    """Steps of a running job; ``before`` is the newest step that the cluster reported before."""

    kind: ProgramKind
    first: int
    last: int
    before: int

    def newest(self, reported: int) -> int:
        """Return the newest step that has begun, from the newest one that the cluster reports."""
        return self.first if reported == self.before else min(max(reported, self.first), self.last)
