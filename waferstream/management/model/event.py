"""Events: what has happened to workflows, numbered and never changed, and what follows from it.

Each kind of event is a class below, which says what it changes of a workflow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from waferstream.core.config import Record
from waferstream.management.model.job import Condition, Job, Kind, Phase
from waferstream.management.model.workflow import (
    MOST_TENURES,
    Aim,
    Placement,
    Prediction,
    Progress,
    Stage,
    Submission,
    Tenure,
    Workflow,
)

Fields = Mapping[str, object]
"""Fields of a workflow with other values."""

_NOT_ASKED: Fields = {"aim": None, "asked_s": None, "next_placement": None}


class Submitted(Record):
    """A user has submitted a workflow; the first of its events."""

    kind: Literal["submitted"] = "submitted"
    user: str
    groups: tuple[str, ...] = ()
    submission: Submission

    def changes(self, _workflow: Workflow, _time_s: float) -> Fields:
        """Return none: the workflow begins with it."""
        return {}


class JobCreated(Record):
    """The program of a workflow has begun a job."""

    kind: Literal["job created"] = "job created"
    job: str
    of: Kind
    log_path: str = ""

    def changes(self, workflow: Workflow, time_s: float) -> Fields:
        """Return the workflow's jobs with this one."""
        condition = Condition(phase=Phase.CREATED, time_s=time_s)
        job = Job(name=self.job, kind=self.of, log_path=self.log_path, conditions=(condition,))
        return {"jobs": (*workflow.jobs, job)}


class JobMoved(Record):
    """A job has reached a phase, or has another reason to wait."""

    kind: Literal["job moved"] = "job moved"
    job: str
    phase: Phase
    message: str = ""

    def changes(self, workflow: Workflow, time_s: float) -> Fields:
        """Return the workflow's jobs, one of them in its phase."""
        jobs = tuple(
            job.moved(self.phase, time_s, self.message) if job.name == self.job else job
            for job in workflow.jobs
        )
        return {"jobs": jobs}


class Waits(Record):
    """The workflow waits for another reason than before."""

    kind: Literal["waits"] = "waits"
    reason: str

    def changes(self, _workflow: Workflow, _time_s: float) -> Fields:
        """Return the reason."""
        return {"reason": self.reason}


class CompileStarted(Record):
    """A process compiles while the workflow waits for systems."""

    kind: Literal["compile started"] = "compile started"

    def changes(self, workflow: Workflow, _time_s: float) -> Fields:
        """Return the stage, and the number of the process."""
        return {"stage": Stage.COMPILING, "attempt": workflow.attempt + 1}


class Placed(Record):
    """The workflow has systems and a MemoryX group, and its process starts."""

    kind: Literal["placed"] = "placed"
    placement: Placement

    def changes(self, workflow: Workflow, time_s: float) -> Fields:
        """Return what it holds, and the number of the process; a service tells no phases itself."""
        phase = Phase.RUNNING if workflow.submission.is_service else Phase.SCHEDULED
        return {
            **_released(workflow, time_s),
            "stage": Stage.RUNNING,
            "jobs": _executes_moved(workflow, phase, time_s),
            "placement": self.placement,
            "held_since_s": time_s,
            "attempt": workflow.attempt + 1,
            "reason": "",
        }


class Asked(Record):
    """The process of the workflow is asked to save and to end."""

    kind: Literal["asked"] = "asked"
    aim: Aim
    next_placement: Placement | None = None
    reason: str = ""

    def changes(self, _workflow: Workflow, time_s: float) -> Fields:
        """Return what it ends for, and since when."""
        return {
            "stage": Stage.ENDING,
            "aim": self.aim,
            "asked_s": time_s,
            "reason": self.reason,
            "next_placement": self.next_placement,
        }


class Released(Record):
    """The process has ended before its run has; the workflow waits again."""

    kind: Literal["released"] = "released"
    reason: str = ""
    is_lost: bool = False
    """Whether nobody had asked it to end."""

    def changes(self, workflow: Workflow, time_s: float) -> Fields:
        """Return the workflow without what it held."""
        return {
            "stage": Stage.WAITING,
            "jobs": _executes_moved(workflow, Phase.QUEUED, time_s),
            "waits_since_s": time_s,
            "reason": self.reason,
            "losses": workflow.losses + self.is_lost,
            **_released(workflow, time_s),
        }


class Predicted(Record):
    """A compile has said how long the run takes."""

    kind: Literal["predicted"] = "predicted"
    prediction: Prediction

    def changes(self, _workflow: Workflow, _time_s: float) -> Fields:
        """Return the prediction."""
        return {"prediction": self.prediction}


class Progressed(Record):
    """A run has got further."""

    kind: Literal["progressed"] = "progressed"
    progress: Progress

    def changes(self, workflow: Workflow, _time_s: float) -> Fields:
        """Return how far it is; steps that were not done before make up for lost processes."""
        before = 0 if workflow.progress is None else workflow.progress.step
        losses = 0 if self.progress.step > before else workflow.losses
        return {"progress": self.progress, "losses": losses}


class Labelled(Record):
    """Labels were set; those with null were removed."""

    kind: Literal["labelled"] = "labelled"
    labels: dict[str, str | None]

    def changes(self, workflow: Workflow, _time_s: float) -> Fields:
        """Return the submission with these labels."""
        labels = {**workflow.submission.labels, **self.labels}
        kept = {key: value for key, value in labels.items() if value is not None}
        return _resubmitted(workflow, labels=kept)


class Prioritized(Record):
    """The priority was changed."""

    kind: Literal["prioritized"] = "prioritized"
    priority: int

    def changes(self, workflow: Workflow, _time_s: float) -> Fields:
        """Return the submission with this priority."""
        return _resubmitted(workflow, priority=self.priority)


class Detached(Record):
    """The client has left; the workflow goes on."""

    kind: Literal["detached"] = "detached"

    def changes(self, workflow: Workflow, _time_s: float) -> Fields:
        """Return the submission of a workflow without client."""
        return _resubmitted(workflow, is_detached=True)


class Ended(Record):
    """The workflow has ended, and holds nothing any more."""

    kind: Literal["ended"] = "ended"
    result: Phase
    message: str = ""

    def changes(self, workflow: Workflow, time_s: float) -> Fields:
        """Return the workflow with its result, and all jobs ended."""
        return {
            "stage": Stage.ENDED,
            "jobs": tuple(job.moved(self.result, time_s, self.message) for job in workflow.jobs),
            "result": self.result,
            "reason": self.message,
            "ended_s": time_s,
            **_released(workflow, time_s),
        }


def _kind_of(fact: Any) -> str | None:
    return fact.get("kind") if isinstance(fact, dict) else getattr(fact, "kind", None)


Fact = Annotated[
    Annotated[Submitted, Tag("submitted")]
    | Annotated[JobCreated, Tag("job created")]
    | Annotated[JobMoved, Tag("job moved")]
    | Annotated[Waits, Tag("waits")]
    | Annotated[CompileStarted, Tag("compile started")]
    | Annotated[Placed, Tag("placed")]
    | Annotated[Asked, Tag("asked")]
    | Annotated[Released, Tag("released")]
    | Annotated[Predicted, Tag("predicted")]
    | Annotated[Progressed, Tag("progressed")]
    | Annotated[Labelled, Tag("labelled")]
    | Annotated[Prioritized, Tag("prioritized")]
    | Annotated[Detached, Tag("detached")]
    | Annotated[Ended, Tag("ended")],
    Discriminator(_kind_of),
]
"""What an event says."""


class Event(Record):
    """One thing that has happened."""

    number: int
    """Grows with every event of the store."""

    time_s: float
    """Seconds since 1970."""

    workflow: str
    fact: Fact


def submitted(name: str, time_s: float, fact: Submitted) -> Workflow:
    """Return a new workflow."""
    return Workflow(
        name=name,
        user=fact.user,
        groups=fact.groups,
        submission=fact.submission,
        submitted_s=time_s,
        waits_since_s=time_s,
    )


def after(workflow: Workflow, fact: Fact, time_s: float) -> Workflow:
    """Return a workflow as an event leaves it; an ended one stays as it is."""
    if workflow.stage is Stage.ENDED:
        return workflow
    return workflow.model_copy(update=dict(fact.changes(workflow, time_s)))


def _released(workflow: Workflow, time_s: float) -> Fields:
    """Return what changes when a workflow gives back what it holds."""
    since_s = time_s if workflow.held_since_s is None else workflow.held_since_s
    used_system_s = workflow.num_csx * max(0.0, time_s - since_s)
    tenures = workflow.tenures
    if workflow.placement is not None:
        ended = Tenure(placement=workflow.placement, since_s=since_s, until_s=max(since_s, time_s))
        tenures = (*tenures, ended)[-MOST_TENURES:]
    return {
        "placement": None,
        "held_since_s": None,
        "tenures": tenures,
        "used_system_s": workflow.used_system_s + used_system_s,
        **_NOT_ASKED,
    }


def _executes_moved(workflow: Workflow, phase: Phase, time_s: float) -> tuple[Job, ...]:
    """Return the jobs of a workflow, those that execute in another phase unless they have ended."""
    return tuple(
        job.moved(phase, time_s) if job.kind == "execute" else job for job in workflow.jobs
    )


def _resubmitted(workflow: Workflow, **changes: object) -> Fields:
    """Return what a workflow asks for, with changes."""
    return {"submission": workflow.submission.model_copy(update=changes)}
