"""A workflow: what a user has submitted, where it runs, and what has come of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from waferstream.core.config import Record
from waferstream.management.model.inventory import DEFAULT_SESSION, MOST_SYSTEMS, SystemKind
from waferstream.management.model.job import PRIORITIES, Job, Phase
from waferstream.management.model.notification import Notification


class Process(Record):
    """The process that runs an embedded workflow."""

    host: str
    pid: int
    started_ticks: int
    """Start of the process, which tells it from a later one with the same number."""


class Submission(Record):
    """What a user asks for.

    A workflow without ``words`` is embedded: its program runs already, in ``process``.
    """

    words: tuple[str, ...] = ()
    """What follows ``waferstream`` on the command line, such as ``--params params.yaml``."""

    package: str = ""
    """Digest of the uploaded working directory."""

    requirements: tuple[str, ...] = ()
    """Packages for pip, which are installed beside those of the appliance."""

    process: Process | None = None
    num_csx: int = Field(default=1, ge=1, le=MOST_SYSTEMS, strict=True)
    min_num_csx: int | None = Field(default=None, ge=1, le=MOST_SYSTEMS, strict=True)
    """The least number of systems that the job runs on; None: it does not breathe."""

    system: SystemKind | None = None
    """The kind of the systems; None takes any."""

    machine: str = ""
    """Number and kind of the systems, such as ``4 x CS-2``, as lists show it."""

    session: str = DEFAULT_SESSION
    priority: int = Field(default=PRIORITIES["p2"], ge=0, le=399, strict=True)
    labels: Mapping[str, str] = Field(default_factory=dict)
    limit_s: float | None = Field(default=None, gt=0, strict=True)
    """End the workflow so long after its start; the time in the queue does not count."""

    is_queued: bool = True
    """Whether it waits for systems; embedded workflows may start beside one another."""

    notifications: tuple[Notification, ...] = ()
    """Whom to tell of failures, pauses and ends."""

    is_service: bool = False
    """Whether it runs until it is cancelled, as ``waferstream serve`` does."""

    is_detached: bool = False
    """Whether it goes on when its client is gone."""

    @property
    def least_csx(self) -> int:
        """The least number of systems that the workflow can start on."""
        return self.min_num_csx or self.num_csx


class Stage(StrEnum):
    """Where a workflow is between its submission and its end."""

    WAITING = "waiting"
    COMPILING = "compiling"
    """It waits for systems, and a process compiles meanwhile."""

    RUNNING = "running"
    """It has its placement; a process runs or is about to."""

    ENDING = "ending"
    """Its process was asked to save and to end."""

    ENDED = "ended"


Aim = Literal["resize", "pause", "cancel"]
"""What a running workflow is asked to end for."""


MOST_TENURES = 100


class Placement(Record):
    """The systems and the MemoryX group that a workflow holds."""

    systems: tuple[str, ...]
    group: str


class Tenure(Record):
    """A time in which a workflow has held a placement, in seconds since 1970."""

    placement: Placement
    since_s: float
    until_s: float


Systems = Annotated[int, Field(ge=1, le=MOST_SYSTEMS)]
"""A number of systems."""

Seconds = Annotated[float, Field(gt=0.0, le=1e12)]
"""A time that something takes."""

MOST_STEPS = 2**63 - 1


class Prediction(Record):
    """How long the whole run takes on the emulated machine."""

    seconds: Mapping[Systems, Seconds]
    """Emulated seconds by number of systems: start-up without compiling, steps, checkpoints."""

    error: float | None = None
    """The share by which nine of ten real machines differ at most (docs/fidelity.md); None where
    nobody has measured such a machine."""


class Progress(Record):
    """How far a run is."""

    step: int = Field(ge=0, le=MOST_STEPS)
    total_steps: int = Field(ge=0, le=MOST_STEPS)
    loss: float | None = None
    samples_per_s: float = 0.0
    emulated_samples_per_s: float = 0.0
    remaining_s: float | None = None
    """Wall-clock seconds until the run ends on the systems that it has."""


class Workflow(Record):
    """A workflow as it is stored: what follows from its events so far."""

    name: str
    user: str
    groups: tuple[str, ...] = ()
    """Groups of the user, whose other members may lead the workflow, too."""

    submission: Submission
    submitted_s: float
    """Seconds since 1970, as all times."""

    stage: Stage = Stage.WAITING
    jobs: tuple[Job, ...] = ()
    placement: Placement | None = None
    attempt: int = 0
    """Processes that were launched so far."""

    held_since_s: float | None = None
    """When it got its placement; None while it waits."""

    waits_since_s: float = 0.0
    """When its present wait began: the submission, or the end of its last process."""

    tenures: tuple[Tenure, ...] = ()
    """What it has held before, the newest MOST_TENURES of them."""

    used_system_s: float = 0.0
    """Seconds of systems in earlier placements."""

    aim: Aim | None = None
    asked_s: float | None = None
    """When its process was asked to end."""

    next_placement: Placement | None = None
    """What it goes on with after a resize; held already."""

    losses: int = 0
    """Processes that were lost since it has got further."""

    reason: str = ""
    """Why it waits, or how it has ended."""

    prediction: Prediction | None = None
    progress: Progress | None = None
    result: Phase | None = None
    """The final phase; None until it has ended."""

    ended_s: float | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether its program runs in a process of its own user, which submitted it."""
        return self.submission.process is not None

    @property
    def num_csx(self) -> int:
        """The systems that it has, or else asks for."""
        held = self.placement.systems if self.placement else ()
        return len(held) or self.submission.num_csx

    @property
    def last_placement(self) -> Placement | None:
        """What it holds, or has held last once it has ended."""
        had = self.tenures[-1].placement if self.tenures and self.stage is Stage.ENDED else None
        return self.placement or had

    def job(self, name: str) -> Job:
        """Return a job by name; KeyError if it is of another workflow."""
        return {job.name: job for job in self.jobs}[name]
