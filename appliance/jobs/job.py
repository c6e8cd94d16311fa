"""A cluster job: its identifiers, its phases, and what it asks for; no I/O.

Names and phases are those of ``csctl`` (cerebras_appliance 2.10), priorities those of the vendor's
documentation (training-docs.cerebras.ai, job-priority).
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

from pydantic import Field

from appliance.jobs.owner import Owner
from waferstream.core.config import Config

Kind = Literal["compile", "execute"]

PRIORITIES: Mapping[str, int] = {"p1": 199, "p2": 299, "p3": 399}
"""Value of each priority that users can set; the smaller goes first."""

KEPT_S = 7 * 24 * 3600.0
"""How long ended jobs are kept: the vendor lists those of the past week (section 4.4)."""


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

    @property
    def holds_systems(self) -> bool:
        """Whether the job has left the queue and not ended."""
        return self in (Phase.SCHEDULED, Phase.INITIALIZING, Phase.RUNNING, Phase.FAILING)


class Condition(Config):
    """A phase that a job has reached, and why."""

    phase: Phase
    time_s: float
    """Seconds since 1970."""

    message: str = ""


class Request(Config):
    """What a program asks for with each of its jobs."""

    num_csx: int = 1
    machine: str = ""
    """Number and kind of the systems, such as ``4 x CS-2``."""

    priority: int = PRIORITIES["p2"]
    labels: dict[str, str] = Field(default_factory=dict)


class JobIds(NamedTuple):
    """The identifiers of a job."""

    name: str
    workflow: str


class ClusterJob(Config):
    """A job of a workflow, as it is stored and listed."""

    name: str
    kind: Kind
    workflow: str
    request: Request
    owner: Owner
    conditions: tuple[Condition, ...] = Field(min_length=1)
    """All phases so far, in order."""

    log_path: str
    """Folder of the job's log."""

    is_cancelled: bool = False
    """Whether a user has asked for its end."""

    @property
    def phase(self) -> Phase:
        """The phase now."""
        return self.conditions[-1].phase

    @property
    def reason(self) -> str:
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

    def moved(self, phase: Phase, time_s: float, message: str = "") -> ClusterJob:
        """Return the job in another phase; itself if it has ended or nothing has changed."""
        if self.phase.is_final or (self.phase, self.reason) == (phase, message):
            return self
        condition = Condition(phase=phase, time_s=time_s, message=message)
        before = self.conditions
        if self.phase is phase:  # another reason to wait
            condition = condition.model_copy(update={"time_s": before[-1].time_s})
            before = before[:-1]
        return self.model_copy(update={"conditions": (*before, condition)})

    def orphaned(self, time_s: float) -> ClusterJob:
        """Return the job as its process leaves it that has died."""
        phase = Phase.CANCELLED if self.is_cancelled else Phase.FAILED
        return self.moved(phase, time_s, "the process of the job has died")

    def is_forgotten(self, time_s: float) -> bool:
        """Return whether the job has ended too long ago to be listed."""
        return self.phase.is_final and time_s - self.conditions[-1].time_s > KEPT_S

    def with_request(self, **changes: object) -> ClusterJob:
        """Return the job with other labels or another priority."""
        return self.model_copy(update={"request": self.request.model_copy(update=changes)})


def priority_text(priority: int) -> str:
    """Return a priority as the vendor's list shows it, such as ``P2 (299)``."""
    return f"P{priority // 100} ({priority})"


def new_job_name() -> str:
    """Return the identifier of a new job: ``wsjob-`` and 22 characters."""
    characters = string.ascii_lowercase + string.digits
    return "wsjob-" + "".join(secrets.choice(characters) for _ in range(22))
