"""The place of an attached cluster: one program at a time, whose commands one thread does.

That thread does what the thread of a program does that has its cluster at hand: it calls the
cluster, and Ctrl-C raises KeyboardInterrupt in it. So commands, failures and interrupts end the
same way. Other threads bring the commands and wait.
"""

from __future__ import annotations

import logging
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from appliance.coordinator.cluster import Cluster, cluster_ended
from appliance.coordinator.commands import BeginCheckpoint, RestoreCheckpoint, SaveCheckpoint
from appliance.plan import ClusterPlan
from appliance.remote.commands import Start
from appliance.spec import ClusterSpec
from appliance.starting import start_cluster
from waferstream.core.errors import (
    ApplianceRuntimeServerError,
    ApplianceUnknownError,
    ClusterJobScheduleError,
    ConfigError,
    WaferStreamError,
)
from waferstream.core.roles.role import Command
from waferstream.core.system_errors import file_error

log = logging.getLogger("waferstream")

_LOOK_S = 0.5


@dataclass
class Task:
    """A command of a program, and its result when it is done."""

    session: str
    command: Command[Any]
    result: Future[Any] = field(default_factory=Future)


class ClusterHost:
    """The cluster of the attached program.

    Args:
        spec: Machine and runtime of every cluster here.
        lease_s: How long a program may be silent.
        start: Starts a cluster.
        clock: Returns seconds that only grow.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        lease_s: float,
        start: Callable[[ClusterPlan], Cluster] = start_cluster,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self._lease_s = lease_s
        self._start = start
        self._clock = clock
        self._lock = threading.Lock()
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._session: str | None = None
        self._heard_s = clock()
        self._has_served = False
        self._current: Task | None = None
        self._interrupts = 0  # signals that this object has sent and the thread has not met yet
        self._cluster: Cluster | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._thread = 0

    def hear(self, session: str) -> None:
        """Note that a program is there; the first one takes the place.

        Raises:
            ClusterJobScheduleError: Another program has the place.
        """
        with self._lock:
            if self._session is None:
                log.info("A program has attached")
                self._session, self._has_served = session, True
            if self._session != session:
                raise ClusterJobScheduleError(
                    "the cluster serves another program",
                    code="cluster-taken",
                    rule="one program at a time",
                    remedy="wait until it has ended, or start a server of your own",
                )
            self._heard_s = self._clock()

    def newest_step(self) -> int:
        """Return the newest step of the running job that has begun, 0 if unknown."""
        cluster = self._cluster
        return 0 if cluster is None else cluster.newest_step()

    def ask(self, session: str, command: Command[Any]) -> Task:
        """Let the thread do a command when those before are done; return at once."""
        self.hear(session)
        task = Task(session, command)
        self._tasks.put(task)
        return task

    def interrupt(self, task: Task) -> None:
        """End a command as Ctrl-C does in a program; nothing if it is done already."""
        task.result.cancel()
        with self._lock:
            if self._current is task:
                self._interrupts += 1
                signal.pthread_kill(self._thread, signal.SIGINT)

    def leave(self, session: str) -> None:
        """End the cluster of a program, and what it does, in a moment."""
        with self._lock:
            if self._session != session:
                return
            self._session = None
            current = self._current
        if current is not None:
            self.interrupt(current)

    def path(self, session: str, name: str) -> Path:
        """Return the path of a file that travels to or from a program.

        Raises:
            ConfigError: The name is that of another folder.
        """
        self.hear(session)
        if name in {"", ".."} or "\0" in name or Path(name).name != name:
            raise ConfigError(
                "a file that travels must have a plain name",
                code="path-escapes",
                where="attached cluster",
                value=name,
            )
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="waferstream-attached-")
            return Path(self._folder.name) / name

    def serve(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Do what programs ask, until ``is_over``; for the thread that gets signals.

        Raises:
            KeyboardInterrupt: This process got a signal of its own.
        """
        self._thread = threading.get_ident()
        try:
            while not is_over():
                try:
                    self._serve_once()
                except KeyboardInterrupt:
                    if not self._is_of_program():
                        raise
        finally:
            self._end_cluster()

    def end_silent(self) -> None:
        """End the cluster of a program that has not been heard for too long."""
        session = self._session
        if session is not None and self._clock() - self._heard_s > self._lease_s:
            log.warning("The program is silent for %g s: its cluster ends", self._lease_s)
            self.leave(session)

    @property
    def is_done(self) -> bool:
        """Whether a program has been here, or none has come within the lease."""
        is_late = self._clock() - self._heard_s > self._lease_s
        return self._session is None and (self._has_served or is_late)

    def _serve_once(self) -> None:
        try:
            task = self._tasks.get(timeout=_LOOK_S)
        except queue.Empty:
            task = None
        if self._session is None:
            self._end_cluster()
        if task is not None:
            if task.session != self._session:
                task.result.cancel()
            self._answer(task)

    def _answer(self, task: Task) -> None:
        """Do a task and give its result, or its error, to who waits for it."""
        if not task.result.set_running_or_notify_cancel():
            return
        self._current = task
        try:
            result = self._do(task.command)
        except KeyboardInterrupt:
            if not self._is_of_program():
                task.result.set_exception(cluster_ended())
                raise
            task.result.set_exception(_interrupted())
        except BaseException as error:
            task.result.set_exception(_typed(error))
        else:
            task.result.set_result(result)
        finally:
            with self._lock:
                self._current = None

    def _do(self, command: Command[Any]) -> Any:
        if isinstance(command, Start):
            self._end_cluster()
            self._cluster = self._start(replace(command.plan, spec=self.spec))
            return None
        if self._cluster is None or self._session is None:
            raise cluster_ended()
        if isinstance(command, SaveCheckpoint | BeginCheckpoint | RestoreCheckpoint):
            command = replace(command, path=self.path(self._session, str(command.path)))
        return self._cluster.do(command)

    def _is_of_program(self) -> bool:
        """Return whether an interrupt is one that ``interrupt`` has sent."""
        with self._lock:
            is_own, self._interrupts = self._interrupts > 0, 0
        return is_own

    def _end_cluster(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.shutdown()
            log.info("The cluster of the program has ended")
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


def _interrupted() -> ApplianceRuntimeServerError:
    return ApplianceRuntimeServerError(
        "the program has interrupted its command", code="command-interrupted"
    )


def _typed(error: BaseException) -> WaferStreamError:
    """Return an error that can travel."""
    if isinstance(error, WaferStreamError):
        return error
    if isinstance(error, OSError):
        return file_error(error)
    return ApplianceUnknownError(
        "the cluster failed for another reason than those it knows",
        code="remote-failure",
        value=repr(error),
        remedy="the log of the server has the traceback",
    )
