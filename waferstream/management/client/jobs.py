"""The jobs of a running program: created, queued, followed, and ended with it."""

from __future__ import annotations

import atexit
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

from waferstream.core.errors import (
    ApplianceNanError,
    ApplianceServiceInterrupted,
    ClusterJobCancelledByCsctl,
    ClusterJobScheduleError,
    ConfigError,
    WaferStreamError,
)
from waferstream.host.slurm import Surrogate, start_surrogate
from waferstream.host.standard_streams import LINE_FORMAT, LogFile
from waferstream.host.user_state import STATE_FOLDER, make_private, open_private, state_folder
from waferstream.host.words import VENDOR_LOG, in_words
from waferstream.management.client.client import Client, EmbeddedClient
from waferstream.management.client.following import BEAT_S, repeating
from waferstream.management.client.launched import launched_client
from waferstream.management.manager.embedded import this_process
from waferstream.management.model import event
from waferstream.management.model.inventory import QueueSpec
from waferstream.management.model.job import Job, Kind, Phase, new_job_name
from waferstream.management.model.launched import launched_workflow
from waferstream.management.model.operations import NoteFact, ReadWorkflow, Submit
from waferstream.management.model.workflow import Placement, Stage, Submission, Workflow

log = logging.getLogger("waferstream")

POLL_S = 1.0
"""Between two looks at the queue."""


class JobIds(NamedTuple):
    """The identifiers of a job."""

    name: str
    workflow: str


class JobClient:
    """The compile jobs and the execute job of a backend.

    Jobs are a view on a run: where they cannot be stored, a warning says so and the run goes on,
    unless it must queue. A run that a management has launched tells that.

    Args:
        submission: What the program asks for.
        queue: What the runs of this computer share; None starts every job at once.
        workflow: Returns the identifier of the workflow that the jobs belong to.
    """

    def __init__(
        self, submission: Submission, queue: QueueSpec | None, workflow: Callable[[], str]
    ) -> None:
        self._submission = submission
        self._queue = queue
        self._workflow = workflow
        self._client: Client | None = None
        self._has_failed = False  # nothing is listed from then on
        self.newest = JobIds("", "")
        """The identifiers of the latest job."""
        self._execute: str | None = None  # the job whose cluster runs
        self._logs: dict[str, LogFile] = {}
        self._surrogates: dict[str, Surrogate] = {}
        self._beats = ExitStack()  # while the execute job waits and runs

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Run the block as a compile job."""
        name = self._create("compile")
        self._move(name, Phase.SCHEDULED)
        self._move(name, Phase.RUNNING)
        try:
            with self._watched(name), self._beating():
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
        name = self._execute = self._create("execute")
        atexit.register(self._end_with_process)
        self._beats.enter_context(self._beating())
        try:
            with self._watched(name):
                if launched_workflow() is None:
                    self._take_systems(name)
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
        self._beats.close()
        self._end(self._execute, error)
        if self._execute is not None and launched_workflow() is None:
            self._note(event.Released())
        self._execute = None

    def close(self) -> None:
        """End the workflow of a program that needs no more jobs. Idempotent."""
        workflow = None if launched_workflow() else self._stored()
        if workflow is not None and workflow.stage is not Stage.ENDED and workflow.jobs:
            newest = workflow.jobs[-1].phase
            self._note(event.Ended(result=newest if newest.is_final else Phase.SUCCEEDED))

    def _beating(self) -> AbstractContextManager[None]:
        """Beat while the block runs, so that other hosts do not take this process for dead."""
        if not isinstance(self._client, EmbeddedClient):
            return nullcontext()
        return repeating(BEAT_S, partial(self._client.beat, self.newest.workflow))

    def _end_with_process(self) -> None:
        self.end_execute(getattr(sys, "last_value", None))  # of an error that nobody caught

    def _create(self, kind: Kind) -> str | None:
        """Create a job, or take up the one that an earlier process of the workflow has left."""
        VENDOR_LOG.info("Initiating a new %s wsjob against the cluster server.", kind)
        workflow = launched_workflow() or self._workflow()
        try:
            name, folder = self._listed(kind, workflow)
        except ClusterJobScheduleError:
            raise
        except (OSError, WaferStreamError) as error:
            if self._queue is not None and kind == "execute":
                raise ClusterJobScheduleError(
                    "a run that queues must be able to write to the state folder",
                    code="state-folder-not-writable",
                    where=STATE_FOLDER,
                    value=error,
                    remedy="name another folder, or remove runtime.queue from cluster.yaml",
                ) from error
            log.warning("The job is not listed: %s", error)
            self._has_failed = True
            self.newest = JobIds(new_job_name(), workflow)
            return None
        self.newest = JobIds(name, workflow)
        self._logs[name] = LogFile(folder / "job.log", LINE_FORMAT, open_private)
        self._logs[name].addFilter(in_words("vendor"))
        log.addHandler(self._logs[name])
        VENDOR_LOG.info(
            "Job id: %s, workflow id: %s, namespace: job-operator, remote log path: %s",
            name,
            workflow,
            folder,
        )
        if (surrogate := start_surrogate(name)) is not None:
            self._surrogates[name] = surrogate
        return name

    def _listed(self, kind: Kind, workflow: str) -> tuple[str, Path]:
        """Return the name of a job that the management lists, and the folder of its log."""
        if self._client is None:
            self._client = _connected(self._queue)
            if launched_workflow() is None:
                own = {"process": this_process(), "is_queued": self._queue is not None}
                submission = self._submission.model_copy(update=own)
                self._client.do(Submit(name=workflow, submission=submission))
        left = _unfinished(self._client.do(ReadWorkflow(name=workflow)), kind)
        name = left.name if left else new_job_name()
        folder = Path(left.log_path) if left and left.log_path else log_folder(name)
        make_private(folder)
        if left is None:
            self._note_in(workflow, event.JobCreated(job=name, of=kind, log_path=str(folder)))
        return name, folder

    def _take_systems(self, name: str | None) -> None:
        """Wait in the queue, and log the reason whenever it changes; without a queue, go on."""
        if self._queue is None:
            self._note(event.Placed(placement=Placement(systems=(), group="")))
            return
        assert name is not None, "it queues"
        assert self._client is not None, "its job is listed"
        self._note_in(self.newest.workflow, event.JobMoved(job=name, phase=Phase.QUEUED))
        reason = ""
        while True:
            workflow = self._client.do(ReadWorkflow(name=self.newest.workflow))
            if workflow.placement is not None:
                return
            _refuse_cancelled(workflow)
            if workflow.stage is Stage.ENDED:
                raise ClusterJobScheduleError(workflow.reason, code="job-not-schedulable")
            if workflow.reason != reason:
                reason = workflow.reason
                log.info("Waiting in the queue: %s", reason)
            time.sleep(POLL_S)

    @contextmanager
    def _watched(self, name: str | None) -> Iterator[None]:
        """Note an error of the block; turn the interrupt of a cancelled job into its error."""
        try:
            _refuse_cancelled(self._stored())
            yield
        except (ApplianceNanError, ClusterJobCancelledByCsctl):
            raise  # the cluster stays after the first; the second is no failure
        except KeyboardInterrupt:
            _refuse_cancelled(self._stored())
            raise
        except BaseException as error:
            self._move(name, Phase.FAILING, first_line(error))
            raise

    def _stored(self) -> Workflow | None:
        """Return the workflow as the management has it; None where it cannot be asked."""
        if self._client is None or self._has_failed:
            return None
        try:
            return self._client.do(ReadWorkflow(name=self.newest.workflow))
        except (OSError, ConfigError, ApplianceServiceInterrupted) as error:
            log.warning("The state of %s is not known: %s", self.newest.workflow, error)
            return None

    def _move(self, name: str | None, phase: Phase, message: str = "") -> None:
        if name is not None:
            self._note(event.JobMoved(job=name, phase=phase, message=message))

    def _note(self, fact: event.Fact) -> None:
        """Note what has happened, as far as anybody takes note."""
        if self._client is None or self._has_failed:
            return
        try:
            self._note_in(self.newest.workflow, fact)
        except (OSError, ConfigError, ApplianceServiceInterrupted) as error:  # the folder is gone
            log.warning("The state of %s is not kept: %s", self.newest.name, error)

    def _note_in(self, workflow: str, fact: event.Fact) -> None:
        assert self._client is not None, "it is connected"
        self._client.do(NoteFact(name=workflow, fact=fact))

    def _end(self, name: str | None, error: BaseException | None) -> None:
        """Move a job to its end; one that goes on in another process, to the queue."""
        message = "" if error is None else first_line(error)
        if isinstance(error, KeyboardInterrupt) and self._goes_on():
            phase, message = Phase.QUEUED, "it goes on with other systems"
        elif isinstance(error, ClusterJobCancelledByCsctl | KeyboardInterrupt):
            phase = Phase.CANCELLED
        else:
            phase = Phase.SUCCEEDED if error is None else Phase.FAILED
        self._move(name, phase, message)
        if name in self._logs:
            log.removeHandler(self._logs.pop(name))
        if name in self._surrogates:
            self._surrogates.pop(name).end(int(phase is Phase.FAILED))

    def _goes_on(self) -> bool:
        """Return whether the management has asked this process to end for a later one."""
        workflow = self._stored() if launched_workflow() is not None else None
        return workflow is not None and workflow.aim in ("resize", "pause")


def _connected(queue: QueueSpec | None) -> Client:
    """Return the management of this run: the one that has launched it, else its user's own."""
    launched = launched_client()
    if launched is not None:
        return launched
    return EmbeddedClient(None if queue is None else queue.inventory())


def _unfinished(workflow: Workflow, kind: Kind) -> Job | None:
    """Return the job of a kind that has not ended."""
    jobs = (job for job in workflow.jobs if job.kind == kind and not job.phase.is_final)
    return next(jobs, None)


def log_folder(job: str) -> Path:
    """Return the folder of a job's log, below the state folder."""
    return state_folder() / "jobs" / job


def _refuse_cancelled(workflow: Workflow | None) -> None:
    if workflow is not None and workflow.aim == "cancel":
        raise ClusterJobCancelledByCsctl(
            "the job was cancelled",
            code="job-cancelled",
            where=workflow.name,
            remedy="the same command continues from the last checkpoint",
        )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or else its class."""
    text = str(error) or type(error).__name__
    return text.splitlines()[0]
