"""The jobs of a user in files: one folder for each below a common one.

<state folder>/jobs/
    lock
    <name>/job.json, job.log

Only their user can read them. The state folder is that of ``waferstream.host.user_state``.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from appliance.jobs.job import ClusterJob, Condition, Kind, Phase, Request, new_job_name
from appliance.jobs.owner import is_dead, this_process
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.host.files import replacing
from waferstream.host.locks import locked
from waferstream.host.user_state import make_private, open_private, state_folder

log = logging.getLogger("waferstream")

FILE = "job.json"


class JobStore:
    """Stored jobs; every method holds a lock, so that processes see whole changes."""

    def __init__(self, folder: Path | None = None) -> None:
        self._given = folder

    @property
    def _folder(self) -> Path:
        """The folder of all jobs; OSError if the user has none."""
        return (self._given or state_folder()) / "jobs"

    def jobs(self) -> list[ClusterJob]:
        """Return all jobs of the past week, oldest first; jobs of dead processes are ended."""
        with self._locked():
            return self._settled()

    def find(self, name: str) -> ClusterJob:
        """Return a job.

        Raises:
            ConfigError: There is no such job.
        """
        return self.change(name, lambda job: job)

    def submit(self, kind: Kind, workflow: str, request: Request) -> ClusterJob:
        """Store a new job of this process and return it."""
        name = new_job_name()
        job = ClusterJob(
            name=name,
            kind=kind,
            workflow=workflow,
            request=request,
            owner=this_process(),
            conditions=(Condition(phase=Phase.CREATED, time_s=time.time()),),
            log_path=str(self._folder / name),
        )
        with self._locked():
            (self._folder / name).mkdir(mode=0o700)
            self._write(job)
        return job

    def change(self, name: str, changed: Callable[[ClusterJob], ClusterJob]) -> ClusterJob:
        """Replace a job by what ``changed`` makes of it, and return that.

        Raises:
            ConfigError: There is no such job.
        """
        with self._locked():
            before = self._read(self._folder / name / FILE)
            if before is None:
                raise _unknown(name, self._settled())
            after = changed(before)
            if after is not before:
                self._write(after)
            return after

    def move(self, name: str, phase: Phase, message: str = "") -> ClusterJob:
        """Move a job to another phase."""
        return self.change(name, lambda job: job.moved(phase, time.time(), message))

    def decide(self, name: str, rule: Callable[[Sequence[ClusterJob]], ClusterJob]) -> ClusterJob:
        """Replace a job by what a rule makes of it among all jobs, and return that.

        Raises:
            ConfigError: There is no such job any more.
        """
        with self._locked():
            jobs = self._settled()
            if name not in {job.name for job in jobs}:
                raise _unknown(name, jobs)
            job = rule(jobs)
            self._write(job)
            return job

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_private(self._folder)
        with locked(self._folder / "lock"):
            yield

    def _settled(self) -> list[ClusterJob]:
        """Read all jobs, and forget those of earlier weeks."""
        jobs: list[ClusterJob] = []
        for path in self._folder.glob(f"*/{FILE}"):
            job = self._read(path)
            if job is None:
                continue
            if job.is_forgotten(time.time()):
                shutil.rmtree(path.parent)
            else:
                jobs.append(job)
        return sorted(jobs, key=lambda job: job.created_s)

    def _read(self, path: Path) -> ClusterJob | None:
        """Return a stored job, ended if its process is dead; None if there is none to read."""
        try:
            job = ClusterJob.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            log.warning("%s is left out: another version has written it", path)
            return None
        if job.name != path.parent.name:
            log.warning("%s is left out: it is another job's", path)
            return None
        if not job.phase.is_final and is_dead(job.owner):
            job = job.orphaned(time.time())
            self._write(job)
        return job

    def _write(self, job: ClusterJob) -> None:
        with (
            replacing(self._folder / job.name / FILE) as partial,
            open(partial, "w", encoding="utf-8", opener=open_private) as file,
        ):
            file.write(job.model_dump_json(indent=2) + "\n")


def _unknown(name: str, jobs: Sequence[ClusterJob]) -> ConfigError:
    guess = did_you_mean(name, [job.name for job in jobs])
    return ConfigError(
        "the job must be one of the past week",
        code="unknown-job",
        value=name,
        remedy=guess or "waferstream job list --all-states",
    )
