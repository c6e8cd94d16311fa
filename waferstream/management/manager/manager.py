"""The manager: a ``case`` for each operation, and the turn that moves its workflows on."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.management.manager.access import (
    check_owner,
    check_priority,
    check_role,
    check_size,
    check_told,
    shown,
    shown_event,
)
from waferstream.management.manager.administration import administer
from waferstream.management.manager.embedded import is_dead
from waferstream.management.manager.folders import Folders
from waferstream.management.manager.launches import Launches
from waferstream.management.manager.leadership import lead
from waferstream.management.manager.numbers import has_process, numbers_of
from waferstream.management.manager.planning import Planning
from waferstream.management.model import operations as ask
from waferstream.management.model.event import (
    Asked,
    Detached,
    Ended,
    Fact,
    JobCreated,
    Labelled,
    Prioritized,
    Released,
    Submitted,
)
from waferstream.management.model.job import KEPT_S, Phase, new_job_name
from waferstream.management.model.operations import Caller, Operation
from waferstream.management.model.telemetry import Numbers, Telemetry
from waferstream.management.model.workflow import Stage, Workflow
from waferstream.management.store.changes import Changes
from waferstream.management.store.store import Store
from waferstream.management.store.views import Views
from waferstream.version import VERSION

Result = TypeVar("Result")

CLIENT_LEASE_S = 60.0
"""After so long without a beat of its client, a workflow is cancelled; a client beats every 10 s.

The time in which the management itself was away does not count.
"""

_PAUSE_S = 30.0
"""A longer time between two turns says that the host slept, or that its clock was set."""


class Manager:
    """The management without its doors; any thread may call it, one at a time.

    Args:
        store: What has happened so far.
        launches: The processes of workflows; None where all programs run already.
        clock: Returns the time in seconds since 1970.
    """

    def __init__(
        self, store: Store, launches: Launches | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._launches = launches
        self._clock = clock
        self._since_s = self._turned_s = clock()
        self._planning = Planning()
        self.pages = ""
        """Where the pages of the management are; empty where it has none."""

        self._telemetry: dict[str, Telemetry] = {}
        self.news = threading.Event()
        """Set where something has changed, so that the next turn need not wait."""

    def do(self, caller: Caller, operation: Operation[Result]) -> Result:
        """Do what a caller asks for.

        Raises:
            RequestRefused: The caller must not ask for it.
            ConfigError: It names what is not there, or does not fit.
            ApplianceServiceInterrupted: The store does not answer.
        """
        check_role(caller, operation)
        result: Any = None
        if operation.changes:
            with self._store.change() as changes:
                result = self._change(changes, caller, operation)
            if not isinstance(operation, ask.Beat | ask.NoteFact):  # the next turn is soon enough
                self.news.set()
        else:
            with self._store.reading() as changes:
                result = self._read(changes, caller, operation)
        return result  # type: ignore[no-any-return]

    def newest_event(self) -> int:
        """Return the number of the newest event."""
        return self._store.newest_event()

    def log_path(self, caller: Caller, workflow: str) -> Path:
        """Return the file with all that a workflow has printed, which may not be there yet."""
        return self._folders.log(self._own_name(caller, workflow))

    def file_path(self, caller: Caller, workflow: str, path: str) -> Path:
        """Return where a file of a run is; ConfigError if there is none."""
        return self._folders.file(self._own_name(caller, workflow), path)

    def upload_path(self) -> Path:
        """Return a new path for an upload."""
        return self._folders.packages.partial(secrets.token_hex(8))

    def keep_package(self, _caller: Caller, uploaded: Path) -> str:
        """Take an uploaded package in, and return its digest; ConfigError if it is none."""
        return self._folders.packages.keep(uploaded)

    def tick(self) -> None:
        """Take note of processes that have ended, and start or stop what the schedule says.

        Raises:
            ConfigError: ``store-is-led``: another management has taken over.
        """
        now_s = self._clock()
        if not 0.0 <= now_s - self._turned_s <= _PAUSE_S:
            self._since_s = now_s
        self._turned_s = now_s
        with self._store.change() as changes:
            if self._launches is None:
                self._end_dead(changes, now_s)
            else:
                lead(changes, now_s)
                self._launches.note_ends(changes, now_s)
                self._end_abandoned(changes, now_s)
            self._planning.decide(changes, now_s, launches=self._launches is not None)
            forgotten = changes.forget(now_s - KEPT_S)
        if self._launches is not None:
            self._launches.folders.delete(forgotten)
            self._launches.follow(self._store)

    def _read(  # noqa: PLR0911  (a case for each operation)
        self, changes: Views, caller: Caller, operation: Operation[Any]
    ) -> Any:
        """Answer a question."""
        match operation:
            case ask.ReadVersion():
                return ask.Version(version=VERSION, pages=self.pages)
            case ask.ListWorkflows():
                workflows = changes.workflows(
                    unfinished=not operation.all_states,
                    user=operation.user,
                    labels=operation.labels,
                    limit=operation.limit,
                )
                return [shown(caller, self._planning.current(each)) for each in workflows]
            case ask.ReadWorkflow():
                return shown(caller, self._planning.current(found(changes, operation.name)))
            case ask.Explain():
                return self._planning.explain(found(changes, operation.name))
            case ask.ListExplanations():
                return self._planning.explanations()
            case ask.ReadEvents():
                name = found(changes, operation.name).name if operation.name else ""
                events = changes.events(name, operation.after, operation.limit)
                return [shown_event(caller, each) for each in events]
            case ask.ReadCluster():
                return self._planning.view(changes)
            case ask.NoteTelemetry():
                workflow = self._own(changes, caller, operation.name)
                self._telemetry[workflow.name] = operation.telemetry
                return None
            case ask.ReadNumbers():
                return self._numbers(changes)
            case ask.ListFiles():
                workflow = self._own(changes, caller, operation.name)
                folders = None if self._launches is None else self._launches.folders
                return [] if folders is None else folders.files(workflow.name)
        raise NotImplementedError(type(operation).__name__)

    def _change(  # noqa: PLR0911  (a case for each operation)
        self, changes: Changes, caller: Caller, operation: Operation[Any]
    ) -> Any:
        """Do what changes something."""
        match operation:
            case ask.Submit():
                return self._submit(changes, caller, operation)
            case ask.OfAdministrator():
                return administer(changes, operation, self._clock())
        assert isinstance(operation, ask.OfWorkflow), "all others are above"
        workflow = self._own(changes, caller, operation.name)
        match operation:
            case ask.Beat():
                who = "run" if caller.role == "run" else "client"
                return changes.beat(workflow.name, who, self._clock())
            case ask.Cancel():
                return self._cancel(changes, workflow, caller)
            case ask.Label():
                _check_unfinished(workflow)
                labelled = self._note(changes, workflow, Labelled(labels=operation.labels))
                check_size(labelled.submission)
                return labelled
            case ask.SetPriority():
                check_priority(caller, operation.priority)
                _check_unfinished(workflow)
                return self._note(changes, workflow, Prioritized(priority=operation.priority))
            case ask.Detach():
                return self._note(changes, workflow, Detached())
            case ask.NoteFact():
                check_told(workflow, operation.fact)
                return self._note(changes, workflow, operation.fact)
        raise NotImplementedError(type(operation).__name__)

    def _submit(self, changes: Changes, caller: Caller, operation: ask.Submit) -> Workflow:
        """Take a workflow in, unless that was done before."""
        earlier = changes.workflow(operation.name)
        if earlier is not None:
            check_owner(caller, earlier)
            return earlier
        submission = operation.submission
        check_size(submission)
        check_priority(caller, submission.priority)
        if self._launches is not None:
            self._launches.check(submission)
            own = changes.workflows(unfinished=False, user=caller.user)
            self._launches.folders.check_quota(caller.user, [each.name for each in own])
        self._planning.check_fits(changes, submission, caller)
        fact = Submitted(user=caller.user, groups=caller.groups, submission=submission)
        workflow = changes.note(operation.name, fact, self._clock())
        if not workflow.is_embedded:
            self._note(changes, workflow, JobCreated(job=new_job_name(), of="execute"))
            workflow = self._note(changes, workflow, Released(reason="it is new"))
        changes.beat(workflow.name, "client", self._clock())
        return workflow

    def _cancel(self, changes: Changes, workflow: Workflow, caller: Caller) -> Workflow:
        """End a workflow, at once if it has no process."""
        _check_unfinished(workflow)
        return self._note(changes, workflow, _cancelling(workflow, f"cancelled by {caller.user}"))

    def _note(self, changes: Changes, workflow: Workflow, fact: Fact) -> Workflow:
        return changes.note(workflow.name, fact, self._clock())

    def _numbers(self, views: Views) -> Numbers:
        """Return what management and running workflows do, and forget those that have ended."""
        workflows = views.workflows()
        running = {each.name for each in workflows if has_process(each)}
        self._telemetry = {name: told for name, told in self._telemetry.items() if name in running}
        own = numbers_of(
            workflows, self._planning.view(views), self._store.newest_event(), self._clock()
        )
        return Numbers(
            management=(*own, *self._planning.statistics.samples()), workflows=self._telemetry
        )

    @property
    def _folders(self) -> Folders:
        assert self._launches is not None, "embedded workflows keep their own files"
        return self._launches.folders

    def _own_name(self, caller: Caller, name: str) -> str:
        """Return the name of a workflow that the caller may lead."""
        with self._store.reading() as changes:
            return self._own(changes, caller, name).name

    def _own(self, changes: Views, caller: Caller, name: str) -> Workflow:
        """Return a workflow that the caller may lead."""
        workflow = found(changes, name)
        check_owner(caller, workflow)
        return workflow

    def _end_abandoned(self, changes: Changes, now_s: float) -> None:
        """Cancel workflows whose client has vanished, unless they were left to go on."""
        beats = changes.beats("client")
        for workflow in changes.workflows():
            heard_s = max(beats.get(workflow.name, workflow.submitted_s), self._since_s)
            is_alone = now_s - heard_s > CLIENT_LEASE_S and not workflow.submission.is_detached
            if is_alone and workflow.stage is not Stage.ENDING:
                changes.note(workflow.name, _cancelling(workflow, "its client has vanished"), now_s)

    def _end_dead(self, changes: Changes, now_s: float) -> None:
        """End embedded workflows whose process has died."""
        beats = changes.beats("client")
        for workflow in changes.workflows():
            process = workflow.submission.process
            beat_s = beats.get(workflow.name, workflow.submitted_s)
            if process is not None and is_dead(process, now_s - beat_s):
                is_cancelled = workflow.aim == "cancel"
                result = Phase.CANCELLED if is_cancelled else Phase.FAILED
                fact = Ended(result=result, message="the process of the job has died")
                changes.note(workflow.name, fact, now_s)


def found(changes: Views, name: str) -> Workflow:
    """Return a workflow by its name or that of one of its jobs.

    Raises:
        ConfigError: There is none.
    """
    workflow = changes.workflow(name)
    if workflow is None:
        names = [job.name for each in changes.workflows(unfinished=False) for job in each.jobs]
        raise ConfigError(
            "the job must be one of the past week",
            code="unknown-job",
            value=name,
            remedy=did_you_mean(name, names) or "waferstream ctl get jobs --all-states",
        )
    return workflow


def _cancelling(workflow: Workflow, why: str) -> Fact:
    """Return what begins the end of a workflow, or ends one that has no process."""
    if workflow.stage is Stage.WAITING and not workflow.is_embedded:
        return Ended(result=Phase.CANCELLED, message=why)
    return Asked(aim="cancel", reason=why)


def _check_unfinished(workflow: Workflow) -> None:
    if workflow.stage is Stage.ENDED:
        raise ConfigError(
            "the job must not have ended",
            code="job-has-ended",
            where=workflow.name,
            value=workflow.result,
        )
