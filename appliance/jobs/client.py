"""The jobs of a running program: created, queued, followed, and ended with it."""

from __future__ import annotations

import atexit
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from appliance.jobs.job import ClusterJob, JobIds, Kind, Phase, Request, new_job_name
from appliance.jobs.queue import QueueSpec, scheduled
from appliance.jobs.store import JobStore
from waferstream.core.errors import (
    ApplianceNanError,
    ClusterJobCancelledByCsctl,
    ClusterJobScheduleError,
    ConfigError,
)
from waferstream.host.standard_streams import LINE_FORMAT, LogFile
from waferstream.host.user_state import STATE_FOLDER, open_private

log = logging.getLogger("waferstream")

POLL_S = 1.0
"""Between two looks at the queue."""


class JobClient:
    """The compile jobs and the execute job of a backend.

    Jobs are a view on a run: where they cannot be stored, a warning says so and the run goes on,
    unless it must queue.

    Args:
        request: What each job asks for.
        queue: What the runs of this computer share; None starts every job at once.
        workflow: Returns the identifier of the workflow that the jobs belong to.
    """

    def __init__(
        self, request: Request, queue: QueueSpec | None, workflow: Callable[[], str]
    ) -> None:
        self._request = request
        self._queue = queue
        self._workflow = workflow
        self._store = JobStore()
        self._names: list[str] = []  # of all stored jobs so far
        self.newest = JobIds("", "")
        """The identifiers of the latest job."""
        self._execute: str | None = None  # the job whose cluster runs
        self._logs: dict[str, LogFile] = {}

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Run the block as a compile job."""
        name = self._submit("compile")
        self._move(name, Phase.SCHEDULED)
        self._move(name, Phase.RUNNING)
        try:
            with self._watched(name):
                yield
        except BaseException as error:
            self._end(name, error)
            raise
        self._end(name, None)

    def start_execute(self) -> None:
        """Create the execute job, and wait until it leaves the queue.

        Raises:
            ClusterJobCancelledByCsctl: It was cancelled while it waited.
            ClusterJobScheduleError: It asks for more than the cluster has.
        """
        name = self._execute = self._submit("execute")
        atexit.register(self._end_with_process)
        try:
            with self._watched(name):
                if self._queue is not None:
                    self._wait(name, self._queue)
                self._move(name, Phase.SCHEDULED)
        except BaseException as error:
            self.end_execute(error)
            raise
        self._move(name, Phase.INITIALIZING)

    def note_running(self) -> None:
        """Note that the cluster has its program and its weights."""
        self._move(self._execute, Phase.RUNNING)

    @contextmanager
    def executing(self) -> Iterator[None]:
        """Run the block as part of the execute job.

        Raises:
            ClusterJobCancelledByCsctl: The job was cancelled before or in the block.
        """
        with self._watched(self._execute):
            yield

    def end_execute(self, error: BaseException | None) -> None:
        """End the execute job, with success if there is no error. Idempotent."""
        atexit.unregister(self._end_with_process)
        self._end(self._execute, error)
        self._execute = None

    def _end_with_process(self) -> None:
        self.end_execute(getattr(sys, "last_value", None))  # of an error that nobody caught

    def _submit(self, kind: Kind) -> str | None:
        log.info("Initiating a new %s wsjob against the cluster server.", kind)
        workflow = self._workflow()
        try:
            job = self._store.submit(kind, workflow, self._like_earlier())
        except OSError as error:
            if self._queue is not None and kind == "execute":
                raise ClusterJobScheduleError(
                    "a run that queues must be able to write to the state folder",
                    code="state-folder-not-writable",
                    where=STATE_FOLDER,
                    value=error,
                    remedy="name another folder, or remove runtime.queue from cluster.yaml",
                ) from error
            log.warning("The job is not listed: %s", error)
            self.newest = JobIds(new_job_name(), workflow)
            return None
        self.newest = JobIds(job.name, workflow)
        self._names.append(job.name)
        path = Path(job.log_path) / "job.log"
        self._logs[job.name] = LogFile(path, LINE_FORMAT, open_private)
        log.addHandler(self._logs[job.name])
        log.info(
            "Job id: %s, workflow id: %s, namespace: job-operator, remote log path: %s",
            job.name,
            job.workflow,
            job.log_path,
        )
        return job.name

    def _like_earlier(self) -> Request:
        """Return the request with the priority of the workflow, which users can change."""
        if not self._names:
            return self._request
        earlier = self._stored(self._names[-1])
        priority = earlier.request.priority if earlier else self._request.priority
        return self._request.model_copy(update={"priority": priority})

    def _wait(self, name: str | None, spec: QueueSpec) -> None:
        """Wait in the queue, and log the reason whenever it changes."""
        assert name is not None, "a job that queues is stored"
        self._store.move(name, Phase.QUEUED)
        reason = ""

        def rule(jobs: Sequence[ClusterJob]) -> ClusterJob:
            return scheduled(name, jobs, spec, time.time())

        while (job := self._store.decide(name, rule)).phase is Phase.QUEUED:
            _refuse_cancelled(job)
            if job.reason != reason:
                reason = job.reason
                log.info("Waiting in the queue: %s", reason)
            time.sleep(POLL_S)

    @contextmanager
    def _watched(self, name: str | None) -> Iterator[None]:
        """Note an error of the block; turn the interrupt of a cancelled job into its error."""
        try:
            _refuse_cancelled(self._stored(name))
            yield
        except (ApplianceNanError, ClusterJobCancelledByCsctl):
            raise  # the cluster stays after the first; the second is no failure
        except KeyboardInterrupt:
            _refuse_cancelled(self._stored(name))
            raise
        except BaseException as error:
            self._move(name, Phase.FAILING, _first_line(error))
            raise

    def _stored(self, name: str | None) -> ClusterJob | None:
        return self._change(name, lambda job: job)

    def _move(self, name: str | None, phase: Phase, message: str = "") -> None:
        self._change(name, lambda job: job.moved(phase, time.time(), message))

    def _change(
        self, name: str | None, changed: Callable[[ClusterJob], ClusterJob]
    ) -> ClusterJob | None:
        """Change a stored job; None if it is not stored."""
        if name is None:
            return None
        try:
            return self._store.change(name, changed)
        except (OSError, ConfigError) as error:  # the folder may be gone
            log.warning("The state of %s is not kept: %s", name, error)
            return None

    def _end(self, name: str | None, error: BaseException | None) -> None:
        if isinstance(error, ClusterJobCancelledByCsctl | KeyboardInterrupt):
            phase = Phase.CANCELLED
        else:
            phase = Phase.SUCCEEDED if error is None else Phase.FAILED
        self._move(name, phase, "" if error is None else _first_line(error))
        if name in self._logs:
            log.removeHandler(self._logs.pop(name))


def _refuse_cancelled(job: ClusterJob | None) -> None:
    if job is not None and job.is_cancelled:
        raise ClusterJobCancelledByCsctl(
            "the job was cancelled",
            code="job-cancelled",
            where=job.name,
            remedy="the same command continues from the last checkpoint",
        )


def _first_line(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0]
