"""What is read from a store, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection, Table, select

from waferstream.core.config import Record
from waferstream.core.errors import ConfigError
from waferstream.management.model.event import Event, Fact
from waferstream.management.model.inventory import Inventory, Session
from waferstream.management.model.operations import Caller
from waferstream.management.model.workflow import Workflow
from waferstream.management.store import tables

Body = TypeVar("Body", bound=Record)

INVENTORY = "inventory"
"""The setting with what the appliance has."""

_FACT: TypeAdapter[Fact] = TypeAdapter(Fact)


class SqlViews:
    """The views of a database, over a connection within a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def workflow(self, name: str) -> Workflow | None:
        row, job = tables.workflows.c, tables.jobs.c
        of_job = select(job.workflow).where(job.name == name).scalar_subquery()
        query = select(row.body).where((row.name == name) | (row.name == of_job))
        body = self._connection.scalar(query)
        return None if body is None else read_body(Workflow, body)

    def workflows(
        self,
        *,
        unfinished: bool = True,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> list[Workflow]:
        row = tables.workflows.c
        query = select(row.body).order_by(row.priority, row.submitted_s, row.name)
        if unfinished:
            query = query.where(row.ended_s.is_(None))
        if user is not None:
            query = query.where(row.user == user)
        if not labels:
            query = query.limit(limit)
        found = [read_body(Workflow, body) for body in self._connection.scalars(query)]
        return [each for each in found if _has(each, labels or {})][:limit]

    def events(self, workflow: str = "", after: int = 0, limit: int = 1000) -> list[Event]:
        row = tables.events.c
        query = select(row.number, row.time_s, row.workflow, row.body)
        query = query.where(row.number > after).order_by(row.number).limit(limit)
        if workflow:
            query = query.where(row.workflow == workflow)
        return [
            Event(number=number, time_s=time_s, workflow=of, fact=_fact(body))
            for number, time_s, of, body in self._connection.execute(query)
        ]

    def beats(self, who: str) -> Mapping[str, float]:
        beat, workflow = tables.beats.c, tables.workflows.c
        query = select(beat.workflow, beat.time_s).join_from(
            tables.beats, tables.workflows, beat.workflow == workflow.name
        )
        query = query.where(beat.who == who, workflow.ended_s.is_(None))
        return {row.workflow: row.time_s for row in self._connection.execute(query)}

    def inventory(self) -> Inventory | None:
        row = tables.settings.c
        body = self._connection.scalar(select(row.body).where(row.name == INVENTORY))
        return None if body is None else read_body(Inventory, body)

    def sessions(self) -> list[Session]:
        return self._named(Session, tables.sessions)

    def users(self) -> list[Caller]:
        return self._named(Caller, tables.users)

    def caller_of(self, digest: str) -> Caller | None:
        token, user = tables.tokens.c, tables.users.c
        query = select(user.body, token.workflow).join_from(
            tables.tokens, tables.users, token.user == user.name
        )
        query = query.where(token.digest == digest, token.revoked_s.is_(None))
        found = self._connection.execute(query).one_or_none()
        if found is None:
            return None
        caller = read_body(Caller, found.body)
        if not found.workflow:
            return caller
        return Caller(user=caller.user, role="run", workflow=found.workflow)

    def _named(self, kind: type[Body], table: Table) -> list[Body]:
        """Return all rows of a table of names and bodies, by name."""
        query = select(table.c.body).order_by(table.c.name)
        return [read_body(kind, body) for body in self._connection.scalars(query)]


def read_body(kind: type[Body], body: str) -> Body:
    """Return what a store has kept as JSON.

    Raises:
        ConfigError: ``store-damaged``: another program has written it.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _damaged(kind.__name__, error) from error


def _fact(body: str) -> Fact:
    try:
        return _FACT.validate_json(body)
    except ValidationError as error:
        raise _damaged("Fact", error) from error


def _damaged(kind: str, error: ValidationError) -> ConfigError:
    first = error.errors(include_url=False)[0]
    return ConfigError(
        f"a stored {kind} cannot be read",
        code="store-damaged",
        where=".".join(map(str, first["loc"])) or None,
        value=first["msg"],
        rule="only this package writes its store",
        remedy="restore the store from a backup",
    )


def _has(workflow: Workflow, labels: Mapping[str, str]) -> bool:
    """Return whether a workflow has all these labels."""
    return labels.items() <= workflow.submission.labels.items()
