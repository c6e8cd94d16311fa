"""A wrapper that makes a role fail on demand: it sees every message of the role.

A role without a fault has no shell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.faults.plan import NEEDS_A_PROCESS, OF_MESSAGES, Fault, FaultLog, FaultPlan, Moment
from appliance.faults.strike import damaged, full_disk, strike
from memoryx.holder import Holder
from waferstream.core.errors import ConfigError
from waferstream.core.messages.message_numbers import MessageNumbers
from waferstream.core.messages.messages import (
    BatchReady,
    BatchReleased,
    Envelope,
    GradientReady,
    GradientReleased,
    Message,
    NormPartial,
    NormTotal,
    StashReady,
    StashReleased,
    StashWanted,
    WeightsReady,
    WeightsReleased,
)
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import CorruptNextGradient, FinishSaving, Save
from waferstream.core.roles.names import COORDINATOR
from waferstream.core.roles.role import (
    Command,
    Job,
    Report,
    Role,
    RoleContext,
    RoleSpec,
    RunningJob,
    Waiting,
)

_MOMENTS: Mapping[Moment, tuple[type[Message], ...]] = {
    "weights": (WeightsReady, WeightsReleased),
    "gradients": (GradientReady, GradientReleased),
    "inputs": (BatchReady, BatchReleased),
    "activations": (StashReady, StashWanted, StashReleased),
    "norms": (NormPartial, NormTotal),
}


def with_faults(
    specs: Sequence[RoleSpec],
    plan: FaultPlan,
    has_processes: bool,
    among: Sequence[str] = (),
) -> list[RoleSpec]:
    """Return the specs of roles that fail as planned.

    Args:
        specs: The roles.
        plan: What happens to them.
        has_processes: Whether each role runs in a process of its own.
        among: The roles of the whole cluster, if some are left out of ``specs``.

    Raises:
        ConfigError: A role does not exist, or a fault needs a process that the role has not.
    """
    by_role = faults_by_role(plan, among or [spec.name for spec in specs], has_processes)
    if not by_role:
        return list(specs)
    folder = folder_of(plan)
    return [
        FaultySpec(spec, by_role[spec.name], folder) if spec.name in by_role else spec
        for spec in specs
    ]


def faults_by_role(
    plan: FaultPlan, roles: Sequence[str], has_processes: bool
) -> dict[str, tuple[Fault, ...]]:
    """Return the faults of each role that has some, of these and of the coordinator."""
    found: dict[str, tuple[Fault, ...]] = {}
    for fault in plan.faults([*roles, COORDINATOR] if has_processes else roles):
        if not has_processes and fault.kind in NEEDS_A_PROCESS:
            raise ConfigError(
                "a fault of a process needs a role in a process of its own",
                code="fault-needs-a-process",
                where="runtime.faults",
                value=fault,
                remedy="run with runtime.kind: ray",
            )
        found[fault.role] = (*found.get(fault.role, ()), fault)
    return found


def folder_of(plan: FaultPlan) -> Path:
    """Return where a plan keeps what has happened."""
    if plan.folder is None:
        raise ConfigError(
            "faults need a folder in which it is kept what has happened",
            code="missing-key",
            where="runtime.faults.folder",
        )
    return plan.folder.resolve()


@dataclass(frozen=True)
class FaultySpec:
    """How to build a role in its shell, where the role will run."""

    spec: RoleSpec
    faults: tuple[Fault, ...]
    folder: Path

    @property
    def name(self) -> str:
        """The role's name."""
        return self.spec.name

    def build(self, context: RoleContext) -> Role:
        """Build the role in its shell."""
        role = self.spec.build(context)
        return Faulty(role, self.faults, FaultLog(self.folder), context.numbers)


class Faulty:
    """The shell of a role; that of a weight server notes the progress of the training, too."""

    def __init__(
        self, role: Role, faults: Sequence[Fault], log: FaultLog, numbers: MessageNumbers
    ) -> None:
        self.name = role.name
        self.step = 0
        self.numbers = numbers
        self._role = role
        self._faults = faults
        self._log = log
        self._noted = 0

    def do(self, command: Command[Any]) -> Any:
        """Let the role do what a command says, on a full disk if that is due."""
        if not isinstance(command, Save) or not self._fills_disk():
            return self._role.do(command)
        with full_disk(min(command.offsets.values(), default=0)):
            self._role.do(command)
            return self._role.do(FinishSaving())

    def _fills_disk(self) -> bool:
        due = (f for f in self._faults if f.kind == "disk" and self.step >= f.step)
        return any(map(self._log.claim, due))

    def begin(self, job: Job) -> RunningJob:
        self.step = job.first_step
        if not job.kind.updates:  # steps of an evaluation are counted apart
            return self._role.begin(job)
        return FaultyJob(self, self._role.begin(job))

    def strike(self, fault: Fault) -> None:
        """Let a fault happen: wrong bits to the role, others to its process."""
        if fault.kind == "wrong_bits":
            self._role.do(CorruptNextGradient())
        else:
            strike(fault)

    def due(self, message: Message) -> Iterator[Fault]:
        """Yield the faults that happen now, on a message of a step."""
        if isinstance(self._role, Holder):
            self._note(message)
        self.step = max(self.step, message.step)
        for fault in self._faults:
            fits = fault.moment == "any" or isinstance(message, _MOMENTS[fault.moment])
            is_due = fits and fault.kind != "disk" and message.step >= fault.step
            if is_due and self._log.claim(fault):
                yield fault

    def _note(self, message: Message) -> None:
        if isinstance(message, GradientReady) and message.step != self._noted:
            self._noted = message.step
            self._log.note_progress(message.step)


def faults_of_coordinator(plan: FaultPlan, roles: Sequence[str]) -> FaultyCoordinator | None:
    """Return the faults of the coordinator of these roles, None if it has none."""
    faults = faults_by_role(plan, roles, has_processes=True).get(COORDINATOR)
    return None if faults is None else FaultyCoordinator(faults, FaultLog(folder_of(plan)))


class FaultyCoordinator:
    """The faults of the coordinator: they happen before the job of their step."""

    def __init__(self, faults: Sequence[Fault], log: FaultLog) -> None:
        self._faults = faults
        self._log = log

    def before_job(self, kind: ProgramKind, last_step: int) -> None:
        """Let happen what is due before a job that ends with a step."""
        for fault in self._faults:
            if kind.updates and fault.step <= last_step and self._log.claim(fault):
                strike(fault)


class FaultyJob:
    """The shell of a running job."""

    def __init__(self, shell: Faulty, job: RunningJob) -> None:
        self._shell = shell
        self._job = job
        self._pending: list[Fault] = []  # of the next messages that the role sends

    @property
    def finished(self) -> bool:
        """Whether the role has done its part."""
        return self._job.finished

    def start(self) -> Iterator[Envelope]:
        return self._job.start()

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        for fault in self._shell.due(envelope.message):
            if fault.kind in OF_MESSAGES:
                self._pending.append(fault)
            else:
                self._shell.strike(fault)
        for answer in self._job.handle(envelope):
            if self._pending:  # the link has numbered what it loses or doubles
                yield from damaged(self._pending.pop(0), self._shell.numbers.numbered(answer))
            else:
                yield answer

    @property
    def is_working(self) -> bool:
        """Whether other threads compute for the role."""
        return self._job.is_working

    def work(self) -> Iterator[Envelope]:
        return self._job.work()

    def leave(self) -> None:
        self._job.leave()

    def report(self) -> Report:
        return self._job.report()

    def waits_for(self) -> Waiting:
        return self._job.waits_for()
