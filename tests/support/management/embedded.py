"""Runs of this user, as the management without a service has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from waferstream.management.client.client import EmbeddedClient
from waferstream.management.manager.embedded import this_process
from waferstream.management.model import event
from waferstream.management.model.inventory import Inventory
from waferstream.management.model.job import Kind, Phase, new_job_name, new_workflow_name
from waferstream.management.model.operations import NoteFact, ReadWorkflow, Submit
from waferstream.management.model.workflow import Placement, Process, Submission, Workflow


class Runs:
    """Programs that have submitted themselves.

    Args:
        inventory: What they share; None if they do not queue.
    """

    def __init__(self, inventory: Inventory | None = None) -> None:
        self.client = EmbeddedClient(inventory)

    def submit(self, process: Process | None = None, **asked: Any) -> Workflow:
        """Return a new workflow, whose process is this one unless another is given."""
        submission = Submission(process=process or this_process(), **asked)
        return self.client.do(Submit(name=new_workflow_name(), submission=submission))

    def job(self, workflow: Workflow, kind: Kind = "execute", folder: Path | None = None) -> str:
        """Begin a job, and return its name."""
        name = new_job_name()
        self.note(workflow, event.JobCreated(job=name, of=kind, log_path=str(folder or "")))
        return name

    def queue(self, workflow: Workflow) -> str:
        """Begin the execute job of a workflow, let it ask for systems, and return its name."""
        name = self.job(workflow)
        self.note(workflow, event.JobMoved(job=name, phase=Phase.QUEUED))
        return name

    def start(self, workflow: Workflow) -> str:
        """Begin the execute job of a workflow that need not queue, and return its name."""
        name = self.job(workflow)
        self.note(workflow, event.Placed(placement=Placement(systems=(), group="")))
        self.note(workflow, event.JobMoved(job=name, phase=Phase.RUNNING))
        return name

    def note(self, workflow: Workflow, fact: event.Fact) -> None:
        """Note what has happened to a workflow."""
        self.client.do(NoteFact(name=workflow.name, fact=fact))

    def now(self, workflow: Workflow) -> Workflow:
        """Return a workflow as it is now."""
        return self.client.do(ReadWorkflow(name=workflow.name))
