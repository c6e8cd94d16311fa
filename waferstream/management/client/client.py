"""The management as those who ask see it, with a service or without one."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from waferstream.host.processes import user_name
from waferstream.host.user_state import make_private, state_folder
from waferstream.management.manager.manager import Manager
from waferstream.management.model.inventory import Inventory
from waferstream.management.model.operations import Caller, Operation
from waferstream.management.store.opening import open_store

Result = TypeVar("Result")

STORE = Path("jobs") / "jobs.sqlite"
"""The store of a user's own runs, below the state folder."""


class Client(Protocol):
    """Asks the management for operations."""

    def do(self, operation: Operation[Result]) -> Result:
        """Do an operation; the errors are those of ``Manager.do``, and of the way there."""
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
        path = state_folder() / STORE
        make_private(path.parent)
        self._store = open_store(str(path))
        self._manager = Manager(self._store, None)
        self._seen = -1
        if inventory is not None:
            with self._store.change() as changes:
                if changes.inventory() != inventory:
                    changes.put_inventory(inventory)

    def do(self, operation: Operation[Result]) -> Result:
        """Do an operation, then what the schedule makes of it."""
        result = self._manager.do(_caller(operation), operation)
        self.turn()
        return result

    def turn(self) -> None:
        """Let the manager take its turn if anything has happened since the last one."""
        if self._store.newest_event() != self._seen:
            self._manager.tick()
            self._seen = self._store.newest_event()

    def close(self) -> None:
        """Close the store. Idempotent."""
        self._store.close()


def _caller(operation: Operation[Result]) -> Caller:
    """Return this user, in a role that may ask for the operation."""
    if "administrator" in operation.roles:
        return Caller(user=user_name(), role="administrator")
    return Caller(user=user_name(), role="run", workflow=getattr(operation, "name", ""))
