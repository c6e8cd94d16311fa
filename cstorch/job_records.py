"""Records of the compiles and executions of a backend, for ``run_meta.json`` (section 4.6)."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

log = logging.getLogger("waferstream")


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
    """The jobs of a backend, announced as by the vendor's client."""

    workflow_id: str = field(default_factory=lambda: f"wflow-{uuid.uuid4().hex[:12]}")
    compile_jobs: list[JobRecord] = field(default_factory=list)
    execute_jobs: list[JobRecord] = field(default_factory=list)

    def begin_compile(self) -> JobRecord:
        """Announce a compile."""
        return self._begin("compile", self.compile_jobs)

    def begin_execution(self, systems: list[str]) -> JobRecord:
        """Announce the start of a cluster with these systems."""
        job = self._begin("execute", self.execute_jobs)
        job.systems = systems
        return job

    def _begin(self, kind: str, jobs: list[JobRecord]) -> JobRecord:
        jobs.append(JobRecord(f"wsjob-{uuid.uuid4().hex[:12]}", self.workflow_id))
        log.info("Initiating a new %s wsjob against the cluster server.", kind)
        log.info("Job id: %s, workflow id: %s", jobs[-1].id, self.workflow_id)
        return jobs[-1]
