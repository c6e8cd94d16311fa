"""A cluster that runs elsewhere, as its program controls it."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from appliance.coordinator.cluster import cluster_ended
from appliance.coordinator.commands import (
    BeginCheckpoint,
    LoadWeights,
    RestoreCheckpoint,
    SaveCheckpoint,
)
from appliance.plan import ClusterPlan
from appliance.remote.access import Access
from appliance.remote.commands import Start
from appliance.remote.connection import Connection
from waferstream.checkpoint.parts import part_path
from waferstream.core.errors import ApplianceRuntimeServerError, WaferStreamError
from waferstream.core.roles.commands import FinishSaving
from waferstream.core.roles.role import Command

_BEAT_S = 1.0
"""Between two signs of life, which also bring the newest step."""


def start_remote(
    access: Access, plan: ClusterPlan, on_end: Callable[[], object] = int
) -> RemoteCluster:
    """Start the cluster of a plan at a server; ``on_end`` is called when it has ended.

    Raises:
        ClusterJobInitError: The server does not answer, or the roles do not start there.
        ClusterJobScheduleError: Another program is attached.
    """
    connection = Connection(access)
    lease_s = connection.describe().lease_s
    cluster = RemoteCluster(connection, lease_s, on_end)
    try:
        cluster.do(Start(plan))
    except BaseException:
        cluster.shutdown()
        raise
    return cluster


class RemoteCluster:
    """A cluster at the other end of a connection.

    A thread says every second that the program is there. When it gets no answer for ``lease_s``,
    the cluster has ended by then, and a command under way fails.
    """

    def __init__(
        self, connection: Connection, lease_s: float, on_end: Callable[[], object] = int
    ) -> None:
        self._on_end = on_end
        self._connection = connection
        self._lease_s = lease_s
        self._newest_step = 0
        self._cancel: Callable[[], object] = int  # ends the command under way
        self._has_ended = threading.Event()
        self._lost: WaferStreamError | None = None
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()
        atexit.register(self.shutdown)  # of a program that does not shut down its backend

    def do(self, command: Command[Any]) -> Any:
        """Do what a command says; files travel with those that write or read one."""
        match command:
            case LoadWeights():
                for part in command.parts():
                    self._do(part)
                return None
            case SaveCheckpoint(path):
                self._with_file(command)
                self._connection.download(path)
                return None
            case BeginCheckpoint(path):
                return self._begin_checkpoint(command)
            case RestoreCheckpoint():
                return self._with_file(command)
            case _:
                return self._do(command)

    def newest_step(self) -> int:
        """Return the newest step of a running job that has begun, as of the last second."""
        return self._newest_step

    def shutdown(self) -> None:
        """End the cluster and the connection. Idempotent."""
        if not self._has_ended.is_set():
            atexit.unregister(self.shutdown)
            self._has_ended.set()
            self._beats.join()
            self._connection.leave()
            self._on_end()

    def _do(self, command: Command[Any]) -> Any:
        if self._has_ended.is_set():
            raise cluster_ended()
        try:
            return self._connection.do(command, self._note_call)
        except ApplianceRuntimeServerError:
            if self._lost is not None:
                raise self._lost from None
            raise
        finally:
            self._cancel = int

    def _note_call(self, call: Any) -> None:
        self._cancel = call.cancel

    def _with_file(self, command: SaveCheckpoint | BeginCheckpoint | RestoreCheckpoint) -> Any:
        """Do a command whose file is sent there as it is now, if it exists."""
        if command.path.exists():
            self._connection.upload(command.path)
        return self._do(replace(command, path=Path(command.path.name)))

    def _begin_checkpoint(self, command: BeginCheckpoint) -> Sequence[str]:
        """Let the servers write a file, and bring it here with their reports; training waits."""
        servers: Sequence[str] = self._with_file(command)
        self._do(FinishSaving())
        self._connection.download(command.path)
        for server in servers:
            self._connection.download(part_path(command.path, server))
        return servers

    def _beat(self) -> None:
        answered_s = time.monotonic()
        while not self._has_ended.wait(_BEAT_S):
            try:
                self._newest_step = self._connection.beat()
                answered_s = time.monotonic()
            except WaferStreamError as error:
                if time.monotonic() - answered_s > self._lease_s:
                    self._lost = error
                    self._cancel()
                    return
