"""Sessions: parts of the inventory that an administrator sets aside for some users."""

from __future__ import annotations

import argparse

from waferstream.cli.frame.output import show, tell
from waferstream.cli.tools.command import Command, argument
from waferstream.cli.tools.ctl.cluster import Usage
from waferstream.cli.tools.ctl.connection import MANAGEMENT_FLAGS, management
from waferstream.cli.tools.ctl.tables import Row
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.management.client.client import Client
from waferstream.management.model.inventory import DEFAULT_SESSION, Session
from waferstream.management.model.operations import DeleteSession, PutSession, ReadCluster


def session_rows(usage: Usage) -> list[Row]:
    """Return a row for each session, and one for what no session sets aside."""
    inventory, sessions = usage.view.inventory, usage.view.sessions
    rest = Session(
        name=DEFAULT_SESSION,
        systems=max(0, len(inventory.systems) - sum(each.systems for each in sessions)),
        groups=max(0, len(inventory.groups) - sum(each.groups for each in sessions)),
        users=("*",),
    )
    return [_row(each, usage) for each in (rest, *sessions)]


def _row(session: Session, usage: Usage) -> Row:
    own = [each for each in usage.workflows if each.submission.session == session.name]
    held = [each.placement for each in own if each.placement is not None]
    return {
        "NAME": session.name,
        "SYSTEMS": f"{session.systems}",
        "IN-USE": f"{sum(len(each.systems) for each in held)}",
        "NODEGROUPS": f"{session.groups}",
        "RUNNING": f"{len(held)}",
        "WAITING": f"{len(own) - len(held)}",
        "USERS": ",".join(session.users),
    }


def _list(given: argparse.Namespace) -> int:
    with management(given) as client:
        return show(session_rows(Usage.of(client)))


def _create(given: argparse.Namespace) -> int:
    """Create a session, unless there is one of its name."""
    with management(given) as client:
        if given.name in _sessions(client):
            raise ConfigError(
                "a new session must have a new name",
                code="name-taken",
                value=given.name,
                remedy="waferstream ctl session resize changes it",
            )
        return _put(given, client, Session(name=given.name, systems=0), "created")


def _resize(given: argparse.Namespace) -> int:
    with management(given) as client:
        sessions = _sessions(client)
        if given.name not in sessions:
            raise ConfigError(
                "the session must exist",
                code="unknown-session",
                value=given.name,
                remedy=did_you_mean(given.name, sessions) or "waferstream ctl get sessions",
            )
        return _put(given, client, sessions[given.name], "resized")


def _sessions(client: Client) -> dict[str, Session]:
    return {each.name: each for each in client.do(ReadCluster()).sessions}


def _put(given: argparse.Namespace, client: Client, before: Session, done: str) -> int:
    """Put a session with what was typed of it."""
    typed = {"systems": given.systems, "groups": given.groups, "users": given.users}
    known = {key: value for key, value in typed.items() if value is not None}
    session = Session.model_validate(before.model_dump() | known)
    client.do(PutSession(session=session))
    return tell(f"session/{session.name} was {done}", **session.model_dump(mode="json"))


def _delete(given: argparse.Namespace) -> int:
    with management(given) as client:
        client.do(DeleteSession(name=given.name))
    return tell(f"session/{given.name} was deleted", name=given.name)


_NAME = argument("name", help="the session")
_SIZE_FLAGS = (
    argument("--systems", type=int, help="CS systems that it has"),
    argument("--groups", type=int, help="MemoryX groups that it has (default: 1)"),
    argument("--users", nargs="+", help="users and groups of users who may use it"),
    *MANAGEMENT_FLAGS,
)

COMMANDS = (
    Command("get sessions", "list the sessions and their use", _list, MANAGEMENT_FLAGS),
    Command("session create", "set systems aside for some users", _create, (_NAME, *_SIZE_FLAGS)),
    Command(
        "session resize", "change a session while its jobs run", _resize, (_NAME, *_SIZE_FLAGS)
    ),
    Command(
        "session delete",
        "give back what a session has; its running jobs end as they are",
        _delete,
        (_NAME, *MANAGEMENT_FLAGS),
    ),
)
