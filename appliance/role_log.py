"""Logs of the roles: one file for each, at the level of its kind.

A role does no I/O. ``LoggedSpec`` builds it inside a shell that has the same methods and writes
what is called, with its time, on any kind of cluster. Roles without a level have no shell.

    ERROR   what the role raised
    INFO    programs, jobs, weights filled, saved and restored
    DEBUG   every message that the role takes
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from appliance.coordinator.roles import Roles
from appliance.spec import RoleLogSpec
from wsc.core.messages.messages import COORDINATOR, Envelope
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
    Waiting,
    WeightHolder,
)
from wsc.host.log_file import LogFile

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_TASK_OF: Mapping[str, str] = {"csx": "act", "rpl": "wgt"}
"""The vendor's task of a kind of role that has another name: activation servers feed systems."""


def with_logs(specs: Sequence[RoleSpec], log: RoleLogSpec) -> list[RoleSpec]:
    """Return the specs of roles that log as ``log`` says."""
    levels = {spec.name: level_of(spec.name, log) for spec in specs}
    return [
        spec
        if (level := levels[spec.name]) is None or log.folder is None
        else LoggedSpec(spec, log.folder, level)
        for spec in specs
    ]


def coordinated_with_logs(roles: Roles, log: RoleLogSpec) -> Roles:
    """Return the roles as the coordinator calls them, logged as ``log`` says of it."""
    level = level_of(COORDINATOR, log)
    if level is None or log.folder is None:
        return roles
    return LoggedRoles(roles, open_log(log.folder, COORDINATOR, level))


def level_of(role: str, log: RoleLogSpec) -> str | int | None:
    """Return the level of a role (``wgt-0``), None if it does not log."""
    kind = role.split("-", maxsplit=1)[0]
    return log.levels.get(_TASK_OF.get(kind, kind))


def open_log(folder: Path, role: str, level: str | int) -> logging.Logger:
    """Return a logger that appends to ``<folder>/<role>.log``."""
    with suppress(OSError):  # reported when a line is to be written
        folder.mkdir(parents=True, exist_ok=True)
    logger = logging.Logger(role, level)  # unknown to other loggers: nothing is printed twice
    logger.addHandler(LogFile(folder / f"{role}.log", _FORMAT))
    return logger


@contextmanager
def _logged(log: logging.Logger, what: str) -> Iterator[None]:
    """Log what is done in the block, with its time, or what it raises."""
    start_s = time.perf_counter()
    try:
        yield
    except Exception:
        log.exception("%s failed", what)
        raise
    log.info("%s: %.3f s", what, time.perf_counter() - start_s)


@dataclass(frozen=True)
class LoggedSpec:
    """How to build a role in its shell, where the role will run."""

    spec: RoleSpec
    folder: Path
    level: str | int

    @property
    def name(self) -> str:
        """The role's name."""
        return self.spec.name

    def build(self, context: RoleContext) -> Role:
        """Build the role in its shell."""
        log = open_log(self.folder, self.name, self.level)
        with _logged(log, "Build"):
            role = self.spec.build(context)
        return (
            LoggedHolder(role, role, log) if isinstance(role, WeightHolder) else Logged(role, log)
        )


class Logged:
    """The shell of a role."""

    def __init__(self, role: Role, log: logging.Logger) -> None:
        self.name = role.name
        self._role = role
        self._log = log

    def install(self, installation: Installation) -> None:
        with _logged(self._log, f"Install the {installation.mode} program"):
            self._role.install(installation)

    def begin(self, job: Job) -> RunningJob:
        self._log.info("Begin %s steps %d to %d", job.mode, job.first_step, job.last_step)
        return LoggedJob(self._role.begin(job), self._log)


class LoggedHolder(Logged):
    """The shell of a role that holds weights."""

    def __init__(self, role: Role, holder: WeightHolder, log: logging.Logger) -> None:
        super().__init__(role, log)
        self._holder = holder

    def train_with(self, optimizer: OptimizerSpec) -> None:
        with _logged(self._log, f"Train with {optimizer.rule}"):
            self._holder.train_with(optimizer)

    def fill(self, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        with _logged(self._log, f"Fill {len(values)} tensors of {state}"):
            self._holder.fill(values, state)

    def layout(self, states: Collection[str]) -> list[TensorSpec]:
        return self._holder.layout(states)

    def save(self, path: Path, offsets: Mapping[str, int], is_background: bool) -> None:
        with _logged(self._log, f"Begin to save {len(offsets)} tensors to {path}"):
            self._holder.save(path, offsets, is_background)

    def finish_saving(self) -> None:
        with _logged(self._log, "Finish saving"):
            self._holder.finish_saving()

    def restore(self, path: Path, state: str, strict: bool) -> None:
        with _logged(self._log, f"Restore {state} from {path}"):
            self._holder.restore(path, state, strict)

    def masters(self, names: Sequence[str], state: str = "model") -> list[np.ndarray]:
        with _logged(self._log, f"Return {len(names)} tensors of {state}"):
            return self._holder.masters(names, state)

    def progress(self) -> Progress | None:
        return self._holder.progress()

    def steps_held(self) -> frozenset[int]:
        return self._holder.steps_held()

    def rollback(self, attempt: int, step: int) -> None:
        with _logged(self._log, f"Take back what came after step {step}"):
            self._holder.rollback(attempt, step)


class LoggedJob:
    """The shell of a running job."""

    def __init__(self, job: RunningJob, log: logging.Logger) -> None:
        self._job = job
        self._log = log
        self._start_s = time.perf_counter()

    @property
    def finished(self) -> bool:
        """Whether the role has done its part."""
        return self._job.finished

    def start(self) -> Iterator[Envelope]:
        return self._passed_on(self._job.start())

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        self._log.debug("%s from %s", type(envelope.message).__name__, envelope.source)
        return self._passed_on(self._job.handle(envelope))

    @property
    def is_working(self) -> bool:
        """Whether other threads compute for the role."""
        return self._job.is_working

    def work(self) -> Iterator[Envelope]:
        return self._passed_on(self._job.work())

    def leave(self) -> None:
        self._job.leave()

    def report(self) -> Report:
        self._log.info("End of the job: %.3f s", time.perf_counter() - self._start_s)
        return self._job.report()

    def waits_for(self) -> Waiting:
        return self._job.waits_for()

    def _passed_on(self, messages: Iterator[Envelope]) -> Iterator[Envelope]:
        try:
            yield from messages
        except Exception:
            self._log.exception("The job failed")
            raise


class LoggedRoles:
    """All roles as the coordinator calls them."""

    def __init__(self, roles: Roles, log: logging.Logger) -> None:
        self._roles = roles
        self._log = log

    def run(self, job: Job) -> list[Report]:
        with _logged(self._log, f"Run {job.mode} steps {job.first_step} to {job.last_step}"):
            return self._roles.run(job)

    def install(self, installation: Installation) -> None:
        with _logged(self._log, f"Install the {installation.mode} program on all roles"):
            self._roles.install(installation)

    def train_with(self, server: str, optimizer: OptimizerSpec) -> None:
        with _logged(self._log, f"Train with {optimizer.rule} on {server}"):
            self._roles.train_with(server, optimizer)

    def fill(self, server: str, values: Mapping[str, torch.Tensor], state: str = "model") -> None:
        with _logged(self._log, f"Fill {len(values)} tensors of {state} of {server}"):
            self._roles.fill(server, values, state)

    def layout(self, server: str, states: Collection[str]) -> list[TensorSpec]:
        return self._roles.layout(server, states)

    def save(
        self, server: str, path: Path, offsets: Mapping[str, int], is_background: bool
    ) -> None:
        with _logged(self._log, f"Begin to save {len(offsets)} tensors of {server} to {path}"):
            self._roles.save(server, path, offsets, is_background)

    def finish_saving(self, server: str) -> None:
        with _logged(self._log, f"Finish saving of {server}"):
            self._roles.finish_saving(server)

    def restore(self, server: str, path: Path, state: str, strict: bool) -> None:
        with _logged(self._log, f"Restore {state} of {server} from {path}"):
            self._roles.restore(server, path, state, strict)

    def masters(self, server: str, names: Sequence[str], state: str = "model") -> list[np.ndarray]:
        with _logged(self._log, f"Fetch {len(names)} tensors of {state} of {server}"):
            return self._roles.masters(server, names, state)

    def settle(self, servers: Collection[str]) -> frozenset[int]:
        with _logged(self._log, "End the failed job"):
            return self._roles.settle(servers)

    def shutdown(self) -> None:
        with _logged(self._log, "Shut down"):
            self._roles.shutdown()
