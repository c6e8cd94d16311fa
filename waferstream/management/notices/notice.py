"""A notice: what a user is told about an event of a workflow."""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.management.model.event import Asked, Ended, Fact, Released
from waferstream.management.model.job import Phase
from waferstream.management.model.notification import Severity
from waferstream.management.model.workflow import Workflow


@dataclass(frozen=True)
class Notice:
    """What a user is told."""

    workflow: str
    severity: Severity
    title: str
    text: str


def notice_of(workflow: Workflow, fact: Fact) -> Notice | None:
    """Return what is told about an event; None about one that is not worth it."""
    match fact:
        case Ended(result=Phase.FAILED):
            severity, title = Severity.FAILURE, "has failed"
        case Ended():
            severity, title = Severity.END, f"has ended: {fact.result}"
        case Released(is_lost=True):
            severity, title = Severity.PAUSE, "has lost its process and goes on"
        case Asked(aim="pause"):
            severity, title = Severity.PAUSE, "makes room for others and goes on later"
        case _:
            return None
    return Notice(
        workflow=workflow.name,
        severity=severity,
        title=f"WaferStream: {workflow.name} {title}",
        text="\n".join(_lines(workflow, fact)),
    )


def _lines(workflow: Workflow, fact: Fact) -> list[str]:
    """Return what is known of a workflow at an event."""
    message = getattr(fact, "message", "") or getattr(fact, "reason", "")
    progress = workflow.progress
    lines = [
        message,
        f"command: {' '.join(workflow.submission.words)}",
        "" if progress is None else f"step {progress.step:,} of {progress.total_steps:,}",
        f"waferstream ctl get job {workflow.name} -oyaml",
    ]
    return [line for line in lines if line]
