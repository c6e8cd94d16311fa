"""What a manager asks of a store: whole changes, and views that are read at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from waferstream.management.model.event import Event, Fact
from waferstream.management.model.inventory import Inventory, NodeState, Session
from waferstream.management.model.leader import Leader
from waferstream.management.model.operations import Caller
from waferstream.management.model.workflow import Workflow


class Views(Protocol):
    """What follows from all events so far, at one moment."""

    def workflow(self, name: str) -> Workflow | None:
        """Return a workflow by its name or that of one of its jobs; None if there is none."""

    def workflows(
        self,
        *,
        unfinished: bool = True,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Workflow]:
        """Return workflows by priority, then age: unfinished ones alone, or ended ones, too."""

    def events(self, workflow: str = "", after: int = 0, limit: int = 1000) -> list[Event]:
        """Return events with greater numbers in order, of one workflow or of all."""

    def beats(self, who: str) -> Mapping[str, float]:
        """Return the time of the last beat by unfinished workflow."""

    def inventory(self) -> Inventory | None:
        """Return what the appliance has; None until it is put."""

    def sessions(self) -> list[Session]:
        """Return all sessions by name."""

    def leader(self) -> Leader | None:
        """Return who decides for the store; None until somebody has."""

    def users(self) -> list[Caller]:
        """Return all users by name."""

    def caller_of(self, digest: str) -> Caller | None:
        """Return whom a token is of, by its digest; None if it is unknown or revoked."""


class Changes(Views, Protocol):
    """One change of a store: nobody else writes meanwhile, and all of it is kept or nothing."""

    def note(self, workflow: str, fact: Fact, time_s: float) -> Workflow:
        """Add an event, and return the workflow that follows from it.

        An ended workflow takes no more events.

        Raises:
            ConfigError: ``unknown-job``: there is no such workflow, and it is not being submitted.
                ``name-taken``: another workflow has a job of this name.
        """

    def beat(self, workflow: str, who: str, time_s: float) -> None:
        """Note that the ``client`` or the ``run`` of a workflow is there; no event."""

    def put_inventory(self, inventory: Inventory) -> None:
        """Keep what the appliance has; states of nodes that stay are kept."""

    def set_node(self, name: str, state: NodeState) -> None:
        """Change the state of a system or a group; ConfigError ``unknown-node``."""

    def put_leader(self, leader: Leader) -> None:
        """Keep who decides for the store."""

    def put_session(self, session: Session) -> None:
        """Create or replace a session."""

    def delete_session(self, name: str) -> None:
        """Delete a session; ConfigError ``unknown-session``."""

    def put_user(self, user: Caller) -> None:
        """Create a user, or give one another role and other groups."""

    def add_token(self, digest: str, user: str, time_s: float) -> None:
        """Keep the digest of a token of a user."""

    def revoke(self, user: str, time_s: float) -> int:
        """Revoke all tokens of a user; return how many."""

    def forget(self, before_s: float) -> Collection[str]:
        """Delete workflows that ended before, with their events; return their names."""


class Store(Protocol):
    """A store, which any number of processes may open at once."""

    def change(self) -> AbstractContextManager[Changes]:
        """Enter a change; what it has written is gone if the block raises.

        Raises:
            ApplianceServiceInterrupted: ``store-unavailable``: the disk is full, or the database
                does not answer.
        """

    def reading(self) -> AbstractContextManager[Views]:
        """Enter a block that sees the store at one moment and writes nothing."""

    def newest_event(self) -> int:
        """Return the number of the newest event, at the cost of a single row."""

    def close(self) -> None:
        """Give back what the store has opened."""
