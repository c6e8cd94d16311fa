"""What is read from a store, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, Table, Text, bindparam, select

from waferstream.management.model.event import Event
from waferstream.management.model.inventory import Inventory, Session
from waferstream.management.model.leader import Leader
from waferstream.management.model.operations import Caller
from waferstream.management.model.workflow import Workflow
from waferstream.management.store import tables
from waferstream.management.store.bodies import Body, read_body, read_fact
from waferstream.management.store.memory import Memory

INVENTORY = "inventory"
LEADER = "leader"
"""Names of settings: what the appliance has, and who decides."""

# Statements are built once: SQLAlchemy takes longer for that than SQLite for their answers.
_row, _job = tables.workflows.c, tables.jobs.c
_NAMED = bindparam("name", type_=Text)
_OF_JOB = select(_job.workflow).where(_job.name == _NAMED).scalar_subquery()
_WORKFLOW = select(_row.name, _row.body).where((_row.name == _NAMED) | (_row.name == _OF_JOB))
_WORKFLOWS = select(_row.name, _row.body).order_by(_row.priority, _row.submitted_s, _row.name)
_event = tables.events.c
_EVENTS = (
    select(_event.number, _event.time_s, _event.workflow, _event.body)
    .where(_event.number > bindparam("after"))
    .order_by(_event.number)
    .limit(bindparam("most"))
)
_token, _user = tables.tokens.c, tables.users.c
_OWNER = (
    select(_user.body)
    .join_from(tables.tokens, tables.users, _token.user == _user.name)
    .where(_token.digest == bindparam("digest"), _token.revoked_s.is_(None))
)
_EVENTS_OF_WORKFLOW = _EVENTS.where(_event.workflow == bindparam("of"))


class Views:
    """What follows from all events so far, at one moment: a transaction of a connection."""

    def __init__(self, connection: Connection, memory: Memory) -> None:
        self._connection = connection
        self._memory = memory

    def workflow(self, name: str) -> Workflow | None:
        """Return a workflow by its name or that of one of its jobs; None if there is none."""
        row = self._connection.execute(_WORKFLOW, {"name": name}).one_or_none()
        return None if row is None else self._memory.workflow(row.name, row.body)

    def workflows(
        self,
        *,
        unfinished: bool = True,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Workflow]:
        """Return workflows by priority, then age: unfinished ones alone, or ended ones, too."""
        query = _WORKFLOWS
        if unfinished:
            query = query.where(_row.ended_s.is_(None))
        if user is not None:
            query = query.where(_row.user == user)
        if not labels:
            query = query.limit(limit)
        rows = self._connection.execute(query)
        found = [self._memory.workflow(name, body) for name, body in rows]
        return [each for each in found if _has(each, labels)][:limit] if labels else found

    def events(self, workflow: str = "", after: int = 0, limit: int = 1000) -> list[Event]:
        """Return events with greater numbers in order, of one workflow or of all."""
        query = _EVENTS_OF_WORKFLOW if workflow else _EVENTS
        wanted = {"after": after, "most": limit} | ({"of": workflow} if workflow else {})
        return [
            Event(number=number, time_s=time_s, workflow=of, fact=read_fact(body))
            for number, time_s, of, body in self._connection.execute(query, wanted)
        ]

    def beats(self, who: str) -> Mapping[str, float]:
        """Return the time of the last beat by unfinished workflow."""
        beat, workflow = tables.beats.c, tables.workflows.c
        query = select(beat.workflow, beat.time_s).join_from(
            tables.beats, tables.workflows, beat.workflow == workflow.name
        )
        query = query.where(beat.who == who, workflow.ended_s.is_(None))
        return {row.workflow: row.time_s for row in self._connection.execute(query)}

    def inventory(self) -> Inventory | None:
        """Return what the appliance has; None until it is put."""
        return self._setting(Inventory, INVENTORY)

    def leader(self) -> Leader | None:
        """Return who decides for the store; None until somebody has."""
        return self._setting(Leader, LEADER)

    def sessions(self) -> list[Session]:
        """Return all sessions by name."""
        return self._named(Session, tables.sessions)

    def users(self) -> list[Caller]:
        """Return all users by name."""
        return self._named(Caller, tables.users)

    def caller_of(self, digest: str) -> Caller | None:
        """Return whom a token is of, by its digest; None if it is unknown or revoked."""
        body = self._connection.scalar(_OWNER, {"digest": digest})
        return None if body is None else read_body(Caller, body)

    def _setting(self, kind: type[Body], name: str) -> Body | None:
        row = tables.settings.c
        body = self._connection.scalar(select(row.body).where(row.name == name))
        return None if body is None else read_body(kind, body)

    def _named(self, kind: type[Body], table: Table) -> list[Body]:
        """Return all rows of a table of names and bodies, by name."""
        query = select(table.c.body).order_by(table.c.name)
        return [read_body(kind, body) for body in self._connection.scalars(query)]


def _has(workflow: Workflow, labels: Mapping[str, str]) -> bool:
    """Return whether a workflow has all these labels."""
    return labels.items() <= workflow.submission.labels.items()
