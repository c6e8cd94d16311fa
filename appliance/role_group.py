"""Systems and switches that share a process, where a host has many more systems than cores.

A process that is forked for a role takes most of a second of processor time to join Ray, more than
all that the role does to start. So the systems of a host take few processes, in runs of
neighbours, and a switch is where all systems below it are. A group is a role to the actor that
hosts it: messages between its members do not leave it, and no member waits in the middle of one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swarmx.topology import HostTree, Tree
from waferstream.core.messages.messages import Envelope
from waferstream.core.roles.names import node_name, switch_name
from waferstream.core.roles.role import (
    Command,
    Job,
    Report,
    Role,
    RoleContext,
    RoleSpec,
    Waiting,
)

_LEAST_PROCESSES = 8
"""Systems of a host that have a process each, on any host."""

_PROCESSES_PER_CORE = 2
"""While the systems of one process wait for messages, those of another compute."""


@dataclass(frozen=True)
class GroupSpec:
    """How to build the roles of a process; its name tells all of them."""

    members: tuple[RoleSpec, ...]

    @property
    def name(self) -> str:
        """The names of the roles in words: ``csx-0 to csx-7, br-5 to br-6``."""
        runs: list[list[str]] = []
        for role in (member.name for member in self.members):
            kind, _, number = role.rpartition("-")
            before = f"{kind}-{int(number) - 1}" if number.isdecimal() else None
            if runs and runs[-1][-1] == before:
                runs[-1].append(role)
            else:
                runs.append([role])
        return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else run[0] for run in runs)

    def build(self, context: RoleContext) -> Group:
        """Build the roles, which share memory and numbers of messages."""
        return Group({spec.name: spec.build(context) for spec in self.members}, context)


class Group:
    """The roles of a process."""

    def __init__(self, roles: dict[str, Role], context: RoleContext) -> None:
        self.name = next(iter(roles))
        self.roles = roles
        self.context = context

    def do(self, command: Command[Any]) -> Any:
        """Let every role do what a command says; the result is that of the last one."""
        return [role.do(command) for role in self.roles.values()][-1]

    def begin(self, job: Job) -> GroupJob:
        return GroupJob(self, job)


class GroupJob:
    """One job of the roles of a process; the oldest message between two of them comes first."""

    def __init__(self, group: Group, job: Job) -> None:
        self._numbers = group.context.numbers
        self._jobs = {name: role.begin(job) for name, role in group.roles.items()}
        self._mail: deque[Envelope] = deque()

    @property
    def finished(self) -> bool:
        """Whether every role has done its part."""
        return all(job.finished for job in self._jobs.values())

    @property
    def is_working(self) -> bool:
        """Whether other threads compute for a role."""
        return any(job.is_working for job in self._jobs.values())

    def start(self) -> Iterator[Envelope]:
        for job in self._jobs.values():
            yield from self._leaving(job.start())
        yield from self._converse()

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        yield from self._leaving(self._jobs[envelope.target].handle(envelope))
        yield from self._converse()

    def work(self) -> Iterator[Envelope]:
        for job in self._jobs.values():
            if job.is_working:
                yield from self._leaving(job.work())
        yield from self._converse()

    def leave(self) -> None:
        for job in self._jobs.values():
            job.leave()

    def report(self) -> Report:
        """Return the report of the first role, with those of the others."""
        first, *others = (job.report() for job in self._jobs.values())
        return replace(first, others=tuple(others))

    def waits_for(self) -> Waiting:
        """Return what a role waits for from another process."""
        waits = [job.waits_for() for job in self._jobs.values() if not job.finished]
        outside = [each for each in waits if not self._jobs.keys() & {*each.peers}]
        return next(iter(outside or waits), Waiting("nothing", ()))

    def _converse(self) -> Iterator[Envelope]:
        """Handle messages until none is left between roles of this process."""
        while self._mail:
            envelope = self._mail.popleft()
            if self._numbers.takes(envelope):
                yield from self._leaving(self._jobs[envelope.target].handle(envelope))

    def _leaving(self, messages: Iterator[Envelope]) -> Iterator[Envelope]:
        """Yield the messages that leave the process; keep the others."""
        for envelope in map(self._numbers.numbered, messages):
            if envelope.target in self._jobs:
                self._mail.append(envelope)
            else:
                yield envelope


def grouped(specs: Sequence[RoleSpec], tree: Tree | HostTree, cores: int) -> list[RoleSpec]:
    """Return the roles of one host with groups in place of systems and switches, if it has many.

    Args:
        specs: The roles.
        tree: What connects the systems.
        cores: The cores of the host.
    """
    of_switches = {switch.name: switch.nodes for switch in tree.switches}
    num_csx = len(of_switches[switch_name(0)])
    count = max(_LEAST_PROCESSES, _PROCESSES_PER_CORE * cores)
    if num_csx <= count:
        return list(specs)
    process_of = {node_name(node): node * count // num_csx for node in range(num_csx)}
    for switch, nodes in of_switches.items():
        first, last = (process_of[node_name(node)] for node in (nodes[0], nodes[-1]))
        process_of[switch] = first if first == last else count
    by_name = {spec.name: spec for spec in specs}
    groups: dict[int, list[RoleSpec]] = {}
    for name, process in process_of.items():
        groups.setdefault(process, []).append(by_name[name])
    alone = [spec for spec in specs if spec.name not in process_of]
    return [*alone, *(GroupSpec(tuple(members)) for members in groups.values())]


def names_of(spec: RoleSpec) -> list[str]:
    """Return the names of the roles that share the process of a spec."""
    members = spec.members if isinstance(spec, GroupSpec) else (spec,)
    return [member.name for member in members]
