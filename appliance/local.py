"""All roles in this process: one thread, one mailbox order, the same bits every time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import torch

from appliance.cores import UnlimitedCores
from swarmx.links.memory import MemoryArena
from wsc.core.errors import (
    ApplianceDeadlockError,
    ApplianceRuntimeServerError,
    WaferStreamError,
)
from wsc.core.messages import Envelope
from wsc.core.role import Job, Report, Role, RoleContext, RoleSpec


class LocalRoles:
    """Roles that take turns: the oldest message is handled first."""

    def __init__(self, specs: Sequence[RoleSpec]) -> None:
        self._roles: dict[str, Role] = {
            spec.name: spec.build(RoleContext(MemoryArena(), UnlimitedCores())) for spec in specs
        }

    def run(self, job: Job) -> list[Report]:
        with _single_threaded():
            return self._run(job)

    def _run(self, job: Job) -> list[Report]:
        mail: deque[Envelope] = deque()
        for name, role in self._roles.items():
            with _blamed(name):
                mail.extend(role.begin(job))
        while mail:
            envelope = mail.popleft()
            with _blamed(envelope.target):
                mail.extend(self._roles[envelope.target].handle(envelope))
        if waiting := [name for name, role in self._roles.items() if not role.finished]:
            raise ApplianceDeadlockError(
                "no message is left but some roles wait", value=", ".join(waiting)
            )
        return [role.report() for role in self._roles.values()]

    def call(self, role: str, method: str, *args: Any) -> Any:
        with _blamed(role):
            return attrgetter(method)(self._roles[role])(*args)

    def call_all(self, method: str, *args: Any) -> None:
        for role in self._roles:
            self.call(role, method, *args)

    def shutdown(self) -> None:
        self._roles.clear()


@contextmanager
def _blamed(role: str) -> Iterator[None]:
    """Name the role that fails without an error of ours, as Ray does for an actor."""
    try:
        yield
    except WaferStreamError:
        raise
    except Exception as error:  # whatever the user's model and loader may raise
        raise ApplianceRuntimeServerError(
            f"{role} failed", where=role, value=repr(error)
        ) from error


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Compute on one thread, as every actor does: the number of threads can change a bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
