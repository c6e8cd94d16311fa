"""All roles in this process: one thread, one message order, bitwise reproducible."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from appliance.placement.cores import UnlimitedCores
from swarmx.links.memory import MemoryArena
from wsc.core.errors import (
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    WaferStreamError,
)
from wsc.core.messages.message_numbers import MessageNumbers
from wsc.core.messages.messages import Envelope, is_server
from wsc.core.optimizer.spec import OptimizerSpec
from wsc.core.program.program import TensorSpec
from wsc.core.roles.installation import Installation
from wsc.core.roles.role import (
    Job,
    Progress,
    Report,
    Role,
    RoleContext,
    RoleSpec,
    RunningJob,
    WeightHolder,
)
from wsc.host.disk import LOCAL_DISK


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
        with _single_threaded():
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

    def install(self, installation: Installation) -> None:
        self.install_on(self._roles, installation)

    def install_on(self, roles: Collection[str], installation: Installation) -> None:
        for name in roles:
            with self._failures_of(name):
                self._roles[name].install(installation)

    def train_with(self, server: str, optimizer: OptimizerSpec) -> None:
        with self._failures_of(server):
            self.holder(server).train_with(optimizer)

    def fill(self, server: str, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        with self._failures_of(server):
            self.holder(server).fill(values, state)

    def layout(self, server: str, states: Collection[str]) -> list[TensorSpec]:
        with self._failures_of(server):
            return self.holder(server).layout(states)

    def save(
        self, server: str, path: Path, offsets: Mapping[str, int], is_background: bool
    ) -> None:
        with self._failures_of(server):
            self.holder(server).save(path, offsets, is_background)

    def finish_saving(self, server: str) -> None:
        with self._failures_of(server):
            self.holder(server).finish_saving()

    def restore(self, server: str, path: Path, state: str, strict: bool) -> None:
        with self._failures_of(server):
            self.holder(server).restore(path, state, strict)

    def masters(self, server: str, names: Sequence[str], state: str = "model") -> list[np.ndarray]:
        with self._failures_of(server):
            return self.holder(server).masters(names, state)

    def settle(self, servers: Collection[str]) -> frozenset[int]:
        held: set[int] = set()
        for server in servers:
            with self._failures_of(server):
                held |= self.holder(server).steps_held()
        return frozenset(held)

    def progress(self, server: str) -> Progress | None:
        with self._failures_of(server):
            return self.holder(server).progress()

    def rollback(self, server: str, attempt: int, step: int) -> None:
        with self._failures_of(server):
            self.holder(server).rollback(attempt, step)

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

    def holder(self, server: str) -> WeightHolder:
        """Return the role of a weight server."""
        role = self._roles[server]
        if not isinstance(role, WeightHolder):
            raise TypeError(f"{server} holds no weights")
        return role

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


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Compute on one thread, as every actor does: the number of threads can change bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
