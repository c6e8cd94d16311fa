"""Records of the compiles and executions of a backend, for ``run_meta.json`` (section 4.6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from appliance.jobs.job import JobIds


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
