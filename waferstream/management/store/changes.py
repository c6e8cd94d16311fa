"""What is written to a store, in one transaction that nobody else writes in."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Table, Update, bindparam, delete, func, insert, select, update

from waferstream.core.config import Record
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.management.model.event import Fact, JobCreated, Submitted, after, submitted
from waferstream.management.model.inventory import (
    Inventory,
    MemoryXGroup,
    NodeState,
    Session,
    System,
)
from waferstream.management.model.leader import Leader
from waferstream.management.model.operations import Caller
from waferstream.management.model.workflow import Stage, Workflow
from waferstream.management.store import tables
from waferstream.management.store.views import INVENTORY, LEADER, Views

Node = TypeVar("Node", System, MemoryXGroup)

POINTS = 256
"""Events of a kind that repeats, such as progress, which a workflow keeps at least."""

_REPEATED = frozenset({"progressed", "waits", "predicted"})
"""Kinds of events whose last one says all: earlier ones are points of a curve."""


# As in views.py, statements of what happens often are built once.
_ADD_EVENT = insert(tables.events)
_ADD_JOB = insert(tables.jobs)
_event = tables.events.c
_OF_KIND = (_event.workflow == bindparam("of")) & (_event.kind == bindparam("of_kind"))
_COUNT = select(func.count(_event.number)).where(_OF_KIND)
_NUMBERS = select(_event.number).where(_OF_KIND).order_by(_event.number)


class Changes(Views):
    """One change of a store: nobody else writes meanwhile, and all of it is kept or nothing."""

    def note(self, workflow: str, fact: Fact, time_s: float) -> Workflow:
        """Add an event, and return the workflow that follows from it.

        An ended workflow takes no more events.

        Raises:
            ConfigError: ``unknown-job``: there is no such workflow, and it is not being submitted.
                ``name-taken``: another workflow has a job of this name.
        """
        before = self.workflow(workflow)
        if before is not None and before.stage is Stage.ENDED:
            return before
        view = _next(before, workflow, fact, time_s)
        self._add_event(view.name, fact, time_s)
        if isinstance(fact, JobCreated):
            self._connection.execute(_ADD_JOB, {"name": fact.job, "workflow": view.name})
        columns = _columns(view)
        self._put(tables.workflows, {"name": view.name}, columns)
        self._memory.keep(view, columns["body"])
        return view

    def beat(self, workflow: str, who: str, time_s: float) -> None:
        """Note that the ``client`` or the ``run`` of a workflow is there; no event."""
        self._put(tables.beats, {"workflow": workflow, "who": who}, {"time_s": time_s})

    def put_inventory(self, inventory: Inventory) -> None:
        """Keep what the appliance has; states of nodes that stay are kept."""
        before = self.inventory()
        if before is not None:
            inventory = _with_states(inventory, _states(before))
        self._put_body(tables.settings, INVENTORY, inventory)

    def set_node(self, name: str, state: NodeState) -> None:
        """Change the state of a system or a group; ConfigError ``unknown-node``."""
        inventory = self.inventory()
        known = {} if inventory is None else _states(inventory)
        if inventory is None or name not in known:
            raise ConfigError(
                "no system or group has this name",
                code="unknown-node",
                value=name,
                remedy=did_you_mean(name, known),
            )
        self._put_body(tables.settings, INVENTORY, _with_states(inventory, {name: state}))

    def put_leader(self, leader: Leader) -> None:
        """Keep who decides for the store."""
        self._put_body(tables.settings, LEADER, leader)

    def put_session(self, session: Session) -> None:
        """Create or replace a session."""
        self._put_body(tables.sessions, session.name, session)

    def delete_session(self, name: str) -> None:
        """Delete a session; ConfigError ``unknown-session``."""
        table = tables.sessions
        if not self._connection.execute(delete(table).where(table.c.name == name)).rowcount:
            names = (each.name for each in self.sessions())
            raise ConfigError(
                "no session has this name",
                code="unknown-session",
                value=name,
                remedy=did_you_mean(name, names),
            )

    def put_user(self, user: Caller) -> None:
        """Create a user, or give one another role and other groups."""
        self._put_body(tables.users, user.user, user)

    def add_token(self, digest: str, user: str, time_s: float) -> None:
        """Keep the digest of a token of a user."""
        row = {"digest": digest, "user": user, "created_s": time_s}
        self._connection.execute(insert(tables.tokens).values(row))

    def revoke(self, user: str, time_s: float) -> int:
        """Revoke all tokens of a user; return how many."""
        token = tables.tokens.c
        statement = update(tables.tokens).where(token.user == user, token.revoked_s.is_(None))
        return self._connection.execute(statement.values(revoked_s=time_s)).rowcount

    def forget(self, before_s: float) -> Collection[str]:
        """Delete workflows that ended before, with their events; return their names."""
        row = tables.workflows.c
        names = self._connection.scalars(select(row.name).where(row.ended_s < before_s)).all()
        for table in (tables.events, tables.jobs, tables.beats):
            self._connection.execute(delete(table).where(table.c.workflow.in_(names)))
        self._connection.execute(delete(tables.workflows).where(row.name.in_(names)))
        return names

    def _add_event(self, workflow: str, fact: Fact, time_s: float) -> None:
        row = {"time_s": time_s, "workflow": workflow, "kind": fact.kind}
        row["body"] = fact.model_dump_json()
        self._connection.execute(_ADD_EVENT, row)
        if fact.kind in _REPEATED:
            self._fold(workflow, fact.kind)

    def _fold(self, workflow: str, kind: str) -> None:
        """Delete every second event of a kind, but not the last, once there are too many."""
        which = {"of": workflow, "of_kind": kind}
        if (self._connection.scalar(_COUNT, which) or 0) <= 2 * POINTS:
            return
        folded = self._connection.scalars(_NUMBERS, which).all()[-2::-2]
        self._connection.execute(delete(tables.events).where(_event.number.in_(folded)))

    def _put_body(self, table: Table, name: str, content: Record) -> None:
        self._put(table, {"name": name}, {"body": content.model_dump_json()})

    def _put(self, table: Table, key: dict[str, str], values: dict[str, object]) -> None:
        """Replace a row, or insert it; nobody else writes meanwhile."""
        keys = {f"its_{name}": value for name, value in key.items()}
        if not self._connection.execute(_replace(table), {**keys, **values}).rowcount:
            self._connection.execute(insert(table), {**key, **values})


@lru_cache
def _replace(table: Table) -> Update:
    """Return the statement that replaces a row, whose key is ``its_NAME`` for each column."""
    statement = update(table)
    for column in table.primary_key:
        statement = statement.where(column == bindparam(f"its_{column.name}"))
    return statement


def _next(before: Workflow | None, name: str, fact: Fact, time_s: float) -> Workflow:
    """Return a workflow as an event leaves it, be it the first."""
    if before is not None:
        return after(before, fact, time_s)
    if isinstance(fact, Submitted):
        return submitted(name, time_s, fact)
    raise ConfigError("no workflow or job has this name", code="unknown-job", value=name)


def _columns(view: Workflow) -> dict[str, Any]:
    """Return the row of a workflow, apart from its name."""
    return {
        "user": view.user,
        "priority": view.submission.priority,
        "submitted_s": view.submitted_s,
        "ended_s": view.ended_s,
        "body": view.model_dump_json(),
    }


def _states(inventory: Inventory) -> dict[str, NodeState]:
    nodes: tuple[System | MemoryXGroup, ...] = (*inventory.systems, *inventory.groups)
    return {node.name: node.state for node in nodes}


def _with_states(inventory: Inventory, states: dict[str, NodeState]) -> Inventory:
    """Return an inventory with the states of some nodes by name."""
    return inventory.model_copy(
        update={
            "systems": tuple(_in_state(system, states) for system in inventory.systems),
            "groups": tuple(_in_state(group, states) for group in inventory.groups),
        }
    )


def _in_state(node: Node, states: dict[str, NodeState]) -> Node:
    return node.model_copy(update={"state": states.get(node.name, node.state)})
