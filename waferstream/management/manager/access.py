"""Who may do what: owners, their groups, administrators, and runs for their own workflow."""

from __future__ import annotations

from typing import Any

from waferstream.core.errors import ConfigError, RequestRefused
from waferstream.management.model.event import (
    Event,
    Fact,
    JobCreated,
    JobMoved,
    Predicted,
    Progressed,
    Submitted,
)
from waferstream.management.model.job import PRIORITIES
from waferstream.management.model.operations import Caller, Operation
from waferstream.management.model.workflow import Submission, Workflow

MOST_SUBMISSION_BYTES = 64 * 1024
"""The most that a workflow may ask for, as JSON: every list and every event carries it on."""


def check_role(caller: Caller, operation: Operation[Any]) -> None:
    """Raise RequestRefused where callers of this role must not ask for an operation."""
    if caller.role not in operation.roles:
        raise RequestRefused(
            "the operation must be asked for by another role",
            code="role-forbids",
            where=type(operation).__name__,
            value=caller.role,
            rule=", ".join(sorted(operation.roles)),
            remedy="ask an administrator",
        )


def owns(caller: Caller, name: str, owner: Workflow | Submitted) -> bool:
    """Return whether a workflow is the caller's, or one of the caller's group.

    Args:
        caller: Who asks.
        name: The workflow.
        owner: What names its user: the workflow, or its first event.
    """
    if caller.role == "run":
        return caller.workflow == name
    is_shared = not set(caller.groups).isdisjoint(owner.groups)
    return caller.user == owner.user or is_shared or caller.role == "administrator"


def shown(caller: Caller, workflow: Workflow) -> Workflow:
    """Return a workflow as a caller may see it: of another user's, not what is private."""
    if owns(caller, workflow.name, workflow):
        return workflow
    return workflow.model_copy(update={"submission": _public(workflow.submission)})


def shown_event(caller: Caller, event: Event) -> Event:
    """Return an event as a caller may see it."""
    fact = event.fact
    if not isinstance(fact, Submitted) or owns(caller, event.workflow, fact):
        return event
    public = fact.model_copy(update={"submission": _public(fact.submission)})
    return event.model_copy(update={"fact": public})


def _public(submission: Submission) -> Submission:
    """Return a submission without its command, its code, and the addresses of its notices."""
    private = {"words": (), "package": "", "requirements": (), "notifications": ()}
    return submission.model_copy(update=private)


def check_owner(caller: Caller, workflow: Workflow) -> None:
    """Raise RequestRefused unless a workflow is the caller's, or one of the caller's group."""
    if not owns(caller, workflow.name, workflow):
        raise RequestRefused(
            "a workflow must be one's own, or of a group that one belongs to",
            code="not-your-workflow",
            where=workflow.name,
            value=caller.user,
            rule=f"it belongs to {workflow.user}",
            remedy="ask its user or an administrator",
        )


def check_priority(caller: Caller, priority: int) -> None:
    """Raise RequestRefused where only administrators may give a priority."""
    if priority <= PRIORITIES["p0"] and caller.role != "administrator":
        raise RequestRefused(
            "P0 must be given by an administrator",
            code="priority-forbidden",
            value=priority,
            rule=f"above {PRIORITIES['p0']}",
            remedy="use p1, p2 or p3",
        )


def check_told(workflow: Workflow, fact: Fact) -> None:
    """Raise RequestRefused for what only the management notes of a workflow that it launches."""
    is_told = isinstance(fact, JobCreated | JobMoved | Predicted | Progressed)
    if not (is_told or workflow.is_embedded):
        raise RequestRefused(
            "a run must tell of its jobs, its predictions and its progress alone",
            code="role-forbids",
            where=workflow.name,
            value=fact.kind,
            rule="the management places, asks and ends",
        )


def check_size(submission: Submission) -> None:
    """Raise ConfigError for what would make the lists of all users long: command and labels."""
    size_bytes = len(submission.model_dump_json())
    if size_bytes > MOST_SUBMISSION_BYTES:
        raise ConfigError(
            "command, labels and packages of a workflow must be short",
            code="submission-too-large",
            value=f"{size_bytes:,} bytes",
            rule=f"at most {MOST_SUBMISSION_BYTES:,} bytes",
            remedy="write it to a file of the working directory, which travels",
        )
