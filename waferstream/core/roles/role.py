"""Roles and their jobs: objects that turn messages into messages, without socket or process.

A role keeps what outlives a job: its spec, its weights, the installed programs. ``begin`` returns
the state of one job. The same objects run inside the loop of LocalRoles and inside a Ray actor;
only the loop around them differs. They may compute inside ``handle`` and yield each message as
soon as it is ready.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import torch

from waferstream.core.messages.message_numbers import MessageNumbers
from waferstream.core.messages.messages import Envelope, Message
from waferstream.core.messages.payload import Arena
from waferstream.core.messages.watch import NOTHING, Finding, TensorNorms, Watch
from waferstream.core.optimizer import LossScale
from waferstream.core.program.program import NormInput, ProgramKind
from waferstream.core.program.schedule import Rounds
from waferstream.core.roles.activities import Interval
from waferstream.core.roles.verification import UNVERIFIED, Verification
from waferstream.host.disk import LOCAL_DISK, Disk

Value = float | torch.Tensor | None
"""A result of a step: a scalar, a tensor, or None for a tensor that nobody asked for."""


@dataclass(frozen=True)
class Job:
    """Run steps ``first_step`` to ``last_step`` (inclusive, counted from 1) of one program.

    A step number is also the sample position: step s reads global batch s - 1, in training later
    by the ``offset`` of the program's ``InputFeed``.
    ``state`` holds the buffers that the program reads. A job with an ``attempt``, a number that no
    other job of the cluster has, is protected: its steps can be taken back one by one
    (commands ``ReadProgress`` and ``Rollback``). Others pay nothing for that. Roles keep at most
    ``trace_limit`` activities each, besides those that are always reported.
    """

    kind: ProgramKind
    first_step: int
    last_step: int
    loss_scale: LossScale | None = None  # of the first step, if it is dynamic
    state: Mapping[str, torch.Tensor] = field(default_factory=dict)
    watch: Watch = NOTHING
    attempt: int = 0
    verification: Verification = UNVERIFIED
    shares: tuple[int, ...] = ()  # micro-batches of each system in a round, where they differ
    trace_limit: int = 0

    def rounds_of(self, installed: Rounds) -> Rounds:
        """Return the rounds of this job; shares of another number of systems do not count."""
        if len(self.shares) != installed.num_nodes:
            return installed
        return replace(installed, shares=self.shares)

    @property
    def steps(self) -> range:
        return range(self.first_step, self.last_step + 1)

    @property
    def is_protected(self) -> bool:
        return self.attempt > 0

    @property
    def is_committed(self) -> bool:
        """Whether weight servers hear of the end of every step (memoryx.job.commitment)."""
        return self.is_protected or self.verification.is_on


@dataclass
class Report:
    """Results of one role after a job.

    ``results`` maps (step, micro-batch) to the results of the micro-batch by position (CS nodes
    only), followed by its contributions to the step state; tensors of results are None except for
    the last step of the job. Of weight servers, ``norms`` maps step to the global gradient norm
    before clipping, where they clip by it, and ``loss_scales`` maps step to the loss scale after
    it, where it is dynamic. ``tensor_norms`` of weight servers are those of the last step, by
    parameter; ``findings`` has the first value that is not finite, of every step that has one.
    Both are empty unless the job watches them. ``step_norms`` has the norms of each step that the
    program asks for (NormResults). ``num_lost`` counts the activities that a trace lacks.
    ``link_waits`` has the seconds for which the role has waited for messages that were on their way
    from other hosts, by their senders. ``others`` are the reports of further roles of its process.
    """

    role: str
    results: dict[tuple[int, int], tuple[Value, ...]] = field(default_factory=dict)
    norms: dict[int, float] = field(default_factory=dict)
    loss_scales: dict[int, LossScale] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    intervals: list[Interval] = field(default_factory=list)
    tensor_norms: dict[str, TensorNorms] = field(default_factory=dict)
    step_norms: dict[int, dict[NormInput, float]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    num_lost: int = 0
    link_waits: dict[str, float] = field(default_factory=dict)
    others: tuple[Report, ...] = ()


class Waiting(NamedTuple):
    """What a running job waits for, in words, and the roles from which it may come."""

    what: str
    peers: tuple[str, ...]


@dataclass(frozen=True)
class Progress:
    """What one weight server knows of the steps of a protected job, finished or not.

    It has applied all updates up to ``applied_step``, perhaps some of the step after, and keeps
    what the nodes have returned up to ``kept_step``: ``report`` has these results and findings, and
    norms and loss scales of the server. ``attempt`` is that of the job.
    """

    attempt: int
    applied_step: int
    kept_step: int
    report: Report


class RunningJob(Protocol):
    """The state of one job of one role; nothing of it outlives the job."""

    def start(self) -> Iterator[Envelope]:
        """Yield the messages that the role sends before it has received any."""

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        """Take one message, in any order across senders; yield the messages it causes."""

    @property
    def is_working(self) -> bool:
        """Whether other threads compute for this role; ``work`` has to be called at some time."""

    def work(self) -> Iterator[Envelope]:
        """Wait until a part of what ``is_working`` states is done; yield what it causes.

        Called while no message waits, so that messages are taken before the role waits.
        """

    def leave(self) -> None:
        """Return when nothing computes for this role any more; the job has ended, maybe early."""

    @property
    def finished(self) -> bool:
        """Whether this role has done its part of the job and every credit is back."""

    def report(self) -> Report:
        """Return the results of the finished job."""

    def waits_for(self) -> Waiting:
        """Return the event that an unfinished job waits for; asked between two messages."""


class Threadless:
    """Base of jobs for which nothing computes but the thread that calls them."""

    @property
    def is_working(self) -> bool:
        """Always False."""
        return False

    def work(self) -> Iterator[Envelope]:
        """Yield nothing."""
        return iter(())

    def leave(self) -> None:
        """Do nothing."""


Result = TypeVar("Result")


class Command(Generic[Result]):
    """An operation of a role, or of a cluster, as data; ``Result`` is what it returns.

    A command that ``changes`` what is there is repeated for replicas, and after a restart. As text
    it is what logs say of it.
    """

    limit_s: ClassVar[float | None] = None
    """How long a caller waits for the result; None as long as it takes."""

    @property
    def changes(self) -> bool:
        """Whether it changes what is there."""
        return False

    def __str__(self) -> str:
        return re.sub("(?<!^)(?=[A-Z])", " ", type(self).__name__).capitalize()


def not_taken(receiver: str, command: Command[Any]) -> TypeError:
    """Return the error for a command that its receiver has no part in."""
    return TypeError(f"{receiver} does not take {type(command).__name__}")


AnyRole = TypeVar("AnyRole", bound="Role")


class JobState(Threadless, Generic[AnyRole]):
    """Base of the running jobs: plain data, except for ``role``, which a pickle leaves out.

    A state that is not working can be pickled between two messages; whoever unpickles it sets
    ``role`` again. Slabs are no part of that: a view of a slab would become a copy, so a state is
    only whole in a pickle while it holds no sum in a slab, and slab handles are for the pickler to
    map.
    """

    role: AnyRole

    def __init__(self, role: AnyRole) -> None:
        self.role = role

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "role"}

    def envelope(self, target: str, message: Message) -> Envelope:
        """Return a message addressed from this role to another."""
        return Envelope(self.role.name, target, message)

    def refusal(self, message: Message) -> TypeError:
        """Return the error for a message of a protocol in which this role has no part."""
        return TypeError(f"{self.role.name} does not take {type(message).__name__}")


class Role(Protocol):
    """A role of the cluster. See waferstream.core.messages.messages for who sends what to whom."""

    name: str

    def do(self, command: Command[Result]) -> Result:
        """Do what a command says, between jobs (waferstream.core.roles.commands), or refuse it."""

    def begin(self, job: Job) -> RunningJob:
        """Return the state of a new job of an installed program; nothing is sent yet."""


class Cores(Protocol):
    """The host's processor cores, shared by all roles on it."""

    def lease(self) -> AbstractContextManager[None]:
        """Hold one core while computing, never while waiting for a message."""


@dataclass(frozen=True)
class RoleContext:
    """The resources that the process of a role lends to it."""

    arena: Arena
    cores: Cores
    disk: Disk = LOCAL_DISK
    numbers: MessageNumbers = field(default_factory=MessageNumbers)


class RoleSpec(Protocol):
    """How to build a role: immutable, picklable, sent to where the role will run."""

    @property
    def name(self) -> str:
        """The role's name, unique in the cluster."""

    def build(self, context: RoleContext) -> Role:
        """Build the role; programs are installed afterwards."""
