"""The management as those who ask see it, with a service or without one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from waferstream.core.errors import ConfigError
from waferstream.host.processes import user_name
from waferstream.host.user_state import make_private, state_folder
from waferstream.management.model.event import Event
from waferstream.management.model.inventory import Inventory
from waferstream.management.model.job import Job
from waferstream.management.model.operations import Caller, Operation, ReadEvents, ReadWorkflow
from waferstream.management.model.workflow import Stage

Result = TypeVar("Result")

TURN_S = 5.0
"""Between two turns of the manager where nothing happens: processes may have died."""

LOOK_S = 0.5
"""Between two looks at the logs of jobs."""

STORE = Path("jobs") / "jobs.sqlite"
"""The store of a user's own runs, below the state folder."""


class Client(Protocol):
    """Asks the management for operations."""

    def do(self, operation: Operation[Result]) -> Result:
        """Do an operation; the errors are those of ``Manager.do``, and of the way there."""
        ...

    def follow(self, workflow: str) -> Iterator[Event | bytes]:
        """Yield events and pieces of the log as they come, until the workflow has ended."""
        ...

    def download(self, workflow: str, path: str, offset: int = 0) -> Iterator[bytes]:
        """Yield a file of a run in pieces, from a place on."""
        ...

    def close(self) -> None:
        """Give back what the client has opened. Idempotent."""
        ...


class EmbeddedClient:
    """The management without a service: a manager in this process, over the store of its user.

    Args:
        inventory: What the runs of the user share; None if they do not queue.

    Raises:
        OSError: The user has no state folder that can be written.
    """

    def __init__(self, inventory: Inventory | None = None) -> None:
        from waferstream.management.manager.manager import Manager  # noqa: PLC0415  (slow)
        from waferstream.management.store.opening import open_store  # noqa: PLC0415  (SQLAlchemy)

        path = state_folder() / STORE
        make_private(path.parent)
        self._store = open_store(str(path))
        self._manager = Manager(self._store, None)
        self._seen, self._turned_s = -1, -math.inf
        self._queues = inventory is not None
        if inventory is not None:
            with self._store.change() as changes:
                if changes.inventory() != inventory:
                    changes.put_inventory(inventory)

    def do(self, operation: Operation[Result]) -> Result:
        """Do an operation, between two turns of the manager if this run queues.

        Runs that wait take the turns; one that does not queue looks for dead processes at times.
        """
        if self._queues or time.monotonic() > self._turned_s + TURN_S:
            self.turn()
        result = self._manager.do(_caller(operation), operation)
        if self._queues:
            self.turn()
        return result

    def follow(self, workflow: str) -> Iterator[Event | bytes]:
        """Yield events of a workflow, and what its jobs log on this host, until it has ended."""
        logs, after_event = Logs(), 0
        while True:
            events = self.do(ReadEvents(name=workflow, after=after_event))
            yield from events
            after_event = events[-1].number if events else after_event
            found = self.do(ReadWorkflow(name=workflow))
            yield from logs.read(found.jobs)
            if found.stage is Stage.ENDED:
                return
            time.sleep(LOOK_S)

    def download(
        self,
        workflow: str,
        path: str,
        offset: int = 0,  # noqa: ARG002  (of the protocol)
    ) -> Iterator[bytes]:
        """Refuse: the files of these runs are on this host already."""
        raise ConfigError(
            "only a management keeps files of runs",
            code="data-file-not-found",
            where=workflow,
            value=path,
            remedy="look into the model_dir of the run",
        )

    def beat(self, workflow: str) -> None:
        """Say that this process of a workflow lives; from any thread."""
        with self._store.change() as changes:
            changes.beat(workflow, "client", time.time())

    def turn(self) -> None:
        """Let the manager take its turn if anything has happened, or else once in a while."""
        newest, now_s = self._store.newest_event(), time.monotonic()
        if newest != self._seen or now_s > self._turned_s + TURN_S:
            self._manager.tick()
            self._seen, self._turned_s = self._store.newest_event(), now_s

    def close(self) -> None:
        """Close the store. Idempotent."""
        self._store.close()


def _caller(operation: Operation[Result]) -> Caller:
    """Return this user, in a role that may ask for the operation."""
    if "administrator" in operation.roles:
        return Caller(user=user_name(), role="administrator")
    return Caller(user=user_name(), role="run", workflow=getattr(operation, "name", ""))


JOB_LOG = "job.log"
"""The log of a job, in its folder."""

_MOST_BYTES = 1 << 20  # of one piece


class Logs:
    """The logs of jobs as one stream."""

    def __init__(self) -> None:
        self._read_bytes: dict[Path, int] = {}

    def read(self, jobs: Iterable[Job]) -> Iterator[bytes]:
        """Yield what is new in pieces."""
        paths = [Path(job.log_path) / JOB_LOG for job in jobs if job.log_path]
        for path in paths:
            with suppress(FileNotFoundError), open(path, "rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                while content := file.read(_MOST_BYTES):
                    self._read_bytes[path] = file.tell()
                    yield content
