"""All roles in this process: one thread, one message order, bitwise reproducible."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from appliance.placement.cores import UnlimitedCores
from csnode.lanes import single_threaded
from swarmx.links.memory import MemoryArena
from waferstream.core.errors import (
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    WaferStreamError,
)
from waferstream.core.messages.message_numbers import MessageNumbers
from waferstream.core.messages.messages import Envelope
from waferstream.core.roles.commands import ReadStepsHeld
from waferstream.core.roles.names import is_server
from waferstream.core.roles.role import (
    Command,
    Job,
    Report,
    Result,
    Role,
    RoleContext,
    RoleSpec,
    RunningJob,
)
from waferstream.host.disk import LOCAL_DISK


class LocalRoles:
    """Roles that run one at a time; the oldest message is handled first."""

    def __init__(self, specs: Sequence[RoleSpec]) -> None:
        self._specs: dict[str, RoleSpec] = {}
        self._roles: dict[str, Role] = {}
        self._numbers: dict[str, MessageNumbers] = {}
        self._failed: dict[str, WaferStreamError] = {}
        self.newest_step = 0
        """The newest step of the running job, or of the last one, that has begun."""
        self.rebuild(specs, ())

    def run(self, job: Job) -> list[Report]:
        with single_threaded():
            return self._run(job)

    def _run(self, job: Job) -> list[Report]:
        states: dict[str, RunningJob] = {}
        for numbers in self._numbers.values():  # what an earlier job has not read is gone
            numbers.restart()
        try:
            self._converse(job, states)
        finally:
            for state in states.values():
                state.leave()
        if waiting := {name: s.waits_for() for name, s in states.items() if not s.finished}:
            raise ApplianceDeadlockError(
                "no message is left but some roles wait",
                code="roles-stalled",
                value="; ".join(
                    f"{name} waits for {', '.join(peers)} ({what})"
                    for name, (what, peers) in waiting.items()
                ),
            )
        return [state.report() for state in states.values()]

    def _converse(self, job: Job, states: dict[str, RunningJob]) -> None:
        """Begin a job on all roles and handle messages until none is left and nobody computes."""
        mail: deque[Envelope] = deque()
        self.newest_step = job.first_step
        for name, role in self._roles.items():
            with self._failures_of(name):
                states[name] = role.begin(job)
                mail.extend(map(self._numbers[name].numbered, states[name].start()))
        while True:
            while mail:
                envelope = mail.popleft()
                if is_server(envelope.target):  # input workers are steps ahead
                    self.newest_step = max(self.newest_step, envelope.message.step)
                numbers = self._numbers[envelope.target]
                with self._failures_of(envelope.target):
                    if numbers.takes(envelope):
                        mail.extend(map(numbers.numbered, states[envelope.target].handle(envelope)))
            working = [name for name, state in states.items() if state.is_working]
            if not working:
                return
            for name in working:
                with self._failures_of(name):
                    mail.extend(map(self._numbers[name].numbered, states[name].work()))

    def do(self, to: Collection[str] | None, command: Command[Result]) -> dict[str, Result]:
        found = {}
        for name in self._roles if to is None else to:
            with self._failures_of(name):
                found[name] = self._roles[name].do(command)
        return found

    def settle(self, servers: Collection[str]) -> frozenset[int]:
        return frozenset().union(*self.do(servers, ReadStepsHeld()).values())

    def prepare(self) -> None:
        """Do nothing: a new role is there at once."""

    def abort(self) -> Mapping[str, WaferStreamError]:
        failed, self._failed = self._failed, {}
        return {role: error for role, error in failed.items() if error.code == "role-died"}

    def rebuild(self, specs: Sequence[RoleSpec], lost: Collection[str]) -> frozenset[str]:
        kept = {s.name for s in specs if s.name not in lost and self._specs.get(s.name) == s}
        before = self._roles
        self._specs = {spec.name: spec for spec in specs}
        numbers = {name: self._numbers.get(name, MessageNumbers()) for name in self._specs}
        self._numbers = numbers
        self._roles = {
            name: before[name]
            if name in kept
            else spec.build(RoleContext(MemoryArena(), UnlimitedCores(), LOCAL_DISK, numbers[name]))
            for name, spec in self._specs.items()
        }
        return frozenset(self._specs) - kept

    def shutdown(self) -> None:
        self._roles.clear()

    def role(self, name: str) -> Role:
        """Return a role."""
        return self._roles[name]

    @contextmanager
    def _failures_of(self, role: str) -> Iterator[None]:
        """Note a failure of a role; a foreign exception becomes an error that names the role."""
        try:
            yield
        except WaferStreamError as error:
            self._failed[role] = error
            raise
        except Exception as error:  # the user's model and loader may raise anything
            self._failed[role] = ApplianceRuntimeServerError(
                f"{role} failed", code="role-failed", where=role, value=repr(error)
            )
            raise self._failed[role] from error
