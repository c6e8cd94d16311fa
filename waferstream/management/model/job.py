"""A cluster job: one compile or execution of a workflow, with the phases it has reached."""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import Field

from waferstream.core.config import Record

Kind = Literal["compile", "execute"]

PRIORITIES: Mapping[str, int] = {"p0": 99, "p1": 199, "p2": 299, "p3": 399}
"""Value of each priority; the smaller goes first. The vendor's, whose P0 is for administrators
(training-docs.cerebras.ai, job-priority)."""

KEPT_S = 7 * 24 * 3600.0
"""How long ended workflows are kept: the vendor lists those of the past week (section 4.4)."""

WORKFLOW_NAME = r"^wflow-[a-z0-9]{22}$"
"""What the name of a workflow matches."""


class Phase(StrEnum):
    """Phases of a cluster job in their order; the last three are final."""

    CREATED = "CREATED"
    QUEUED = "QUEUED"
    SCHEDULED = "SCHEDULED"
    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FAILING = "FAILING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


class Condition(Record):
    """A phase that a job has reached, and why."""

    phase: Phase
    time_s: float
    """Seconds since 1970."""

    message: str = ""


class Job(Record):
    """A job of a workflow."""

    name: str
    kind: Kind
    log_path: str = ""
    """Folder of the job's log, on the host where it runs."""

    conditions: tuple[Condition, ...] = Field(min_length=1)
    """All phases so far, in order."""

    @property
    def phase(self) -> Phase:
        """The phase now."""
        return self.conditions[-1].phase

    @property
    def message(self) -> str:
        """Why the job waits or has failed."""
        return self.conditions[-1].message

    @property
    def created_s(self) -> float:
        """When the job was created, in seconds since 1970."""
        return self.conditions[0].time_s

    def time_of(self, *phases: Phase) -> float | None:
        """Return when the job reached the first of ``phases``, None if it has not."""
        times = (each.time_s for each in self.conditions if each.phase in phases)
        return next(times, None)

    def moved(self, phase: Phase, time_s: float, message: str = "") -> Job:
        """Return the job in another phase; itself if it has ended or nothing has changed."""
        if self.phase.is_final or (self.phase, self.message) == (phase, message):
            return self
        condition = Condition(phase=phase, time_s=time_s, message=message)
        before = self.conditions
        if self.phase is phase:  # another reason to wait
            condition = condition.model_copy(update={"time_s": before[-1].time_s})
            before = before[:-1]
        return self.model_copy(update={"conditions": (*before, condition)})


def priority_text(priority: int) -> str:
    """Return a priority as the vendor's list shows it, such as ``P2 (299)``."""
    return f"P{priority // 100} ({priority})"


def new_job_name() -> str:
    """Return the identifier of a new job: ``wsjob-`` and 22 characters."""
    return "wsjob-" + _characters(22)


def new_workflow_name() -> str:
    """Return the identifier of a new workflow: ``wflow-`` and 22 characters."""
    return "wflow-" + _characters(22)


def _characters(count: int) -> str:
    characters = string.ascii_lowercase + string.digits
    return "".join(secrets.choice(characters) for _ in range(count))
