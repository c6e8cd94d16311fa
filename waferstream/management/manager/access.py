"""Who may do what: owners, their groups, administrators, and runs for their own workflow."""

from __future__ import annotations

from typing import Any

from waferstream.core.errors import RequestRefused
from waferstream.management.model.event import Fact, JobCreated, JobMoved, Predicted, Progressed
from waferstream.management.model.job import PRIORITIES
from waferstream.management.model.operations import Caller, Operation
from waferstream.management.model.workflow import Workflow


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


def check_owner(caller: Caller, workflow: Workflow) -> None:
    """Raise RequestRefused unless a workflow is the caller's, or one of the caller's group."""
    if caller.role == "run":
        is_allowed = caller.workflow == workflow.name
    else:
        is_shared = not set(caller.groups).isdisjoint(workflow.groups)
        is_own = caller.user == workflow.user
        is_allowed = is_own or is_shared or caller.role == "administrator"
    if not is_allowed:
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
