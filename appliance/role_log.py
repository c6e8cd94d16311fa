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
from typing import Any

from appliance.coordinator.roles import Roles
from appliance.spec import RoleLogSpec
from waferstream.core.messages.messages import Envelope
from waferstream.core.roles.names import COORDINATOR
from waferstream.core.roles.role import (
    Command,
    Job,
    Report,
    Result,
    Role,
    RoleContext,
    RoleSpec,
    RunningJob,
    Waiting,
)
from waferstream.host.standard_streams import LogFile

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_TASK_OF: Mapping[str, str] = {"csx": "act", "rpl": "wgt"}
"""The vendor's task of a kind of role that has another name, or the nearest one."""


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
        return Logged(role, log)


class Logged:
    """The shell of a role."""

    def __init__(self, role: Role, log: logging.Logger) -> None:
        self.name = role.name
        self._role = role
        self._log = log

    def do(self, command: Command[Any]) -> Any:
        """Let the role do what a command says."""
        with _logged(self._log, str(command)):
            return self._role.do(command)

    def begin(self, job: Job) -> RunningJob:
        self._log.info("Begin %s steps %d to %d", job.kind, job.first_step, job.last_step)
        return LoggedJob(self._role.begin(job), self._log)


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
        with _logged(self._log, f"Run {job.kind} steps {job.first_step} to {job.last_step}"):
            return self._roles.run(job)

    def do(self, to: Collection[str] | None, command: Command[Result]) -> dict[str, Result]:
        who = "all roles" if to is None else ", ".join(to)
        with _logged(self._log, f"{command} on {who}"):
            return self._roles.do(to, command)

    def settle(self, servers: Collection[str]) -> frozenset[int]:
        with _logged(self._log, "End the failed job"):
            return self._roles.settle(servers)

    def shutdown(self) -> None:
        with _logged(self._log, "Shut down"):
            self._roles.shutdown()
