"""What a role is: an object that turns messages into messages, with no thread, socket or process.

The same role object runs inside the loop of LocalRoles and inside a Ray actor; only the loop around
it differs. Roles may compute inside ``handle`` and yield what they send as soon as it is ready.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from wsc.core.messages import Envelope
from wsc.core.payload import Arena
from wsc.core.program import Mode


@dataclass(frozen=True)
class Job:
    """Run steps ``first_step`` to ``last_step`` (inclusive, counted from 1) of one program.

    A step number is also the sample position: step s of a training job reads global batch s - 1.
    """

    mode: Mode
    first_step: int
    last_step: int

    @property
    def steps(self) -> range:
        return range(self.first_step, self.last_step + 1)


@dataclass(frozen=True)
class Interval:
    """One activity of a role in measured time, for traces (``time.perf_counter_ns`` clock)."""

    activity: str
    start_ns: int
    end_ns: int
    step: int
    detail: str = ""


@dataclass
class Report:
    """What a role has to say when a job is over.

    ``results`` maps (step, micro-batch) to the step's scalar outputs (CS nodes only); ``norms``
    maps step to the global gradient norm before clipping (weight servers that clip by it).
    """

    role: str
    results: dict[tuple[int, int], tuple[float, ...]] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)


class Role(Protocol):
    """A role of the cluster. See wsc.core.messages for who sends what to whom."""

    name: str

    def install(self, installation: Any) -> None:
        """Take this role's part of a program (a wsc.core.installation.Installation)."""

    def begin(self, job: Job) -> Iterator[Envelope]:
        """Start a job of an installed program; yields the messages that start it off."""

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        """Take one message, in any order across senders; yields the messages it causes."""

    @property
    def finished(self) -> bool:
        """Whether this role has done its part of the job and every credit is back."""

    def report(self) -> Report:
        """Results of the finished job."""


class Cores(Protocol):
    """The host's processor cores, shared by all roles on it."""

    def lease(self) -> AbstractContextManager[None]:
        """Hold one core while computing, never while waiting for a message."""


@dataclass(frozen=True)
class RoleContext:
    """What the place where a role runs lends it."""

    arena: Arena
    cores: Cores


class RoleSpec(Protocol):
    """How to build a role: immutable, picklable, sent to where the role will run."""

    @property
    def name(self) -> str:
        """The role's name, unique in the cluster."""

    def build(self, context: RoleContext) -> Role:
        """The role, ready for ``begin``."""
