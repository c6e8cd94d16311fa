"""Sessions: parts of the inventory that an administrator sets aside for some users."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import show, tell
from waferstream.cli.tools.ctl.cluster import Usage
from waferstream.cli.tools.ctl.connection import Management
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


_Name = Annotated[str, Argument(help="the session")]


@dataclass(frozen=True)
class Size:
    """Flags that say what a session has."""

    systems: Annotated[int | None, Option(help="CS systems that it has")] = None
    groups: Annotated[int | None, Option(help="MemoryX groups that it has (default: 1)")] = None
    users: Annotated[list[str] | None, Option(help="users and groups of users who may use it")] = (
        None
    )

    def put(self, client: Client, before: Session, done: str) -> int:
        """Put a session with what was typed of it; return the exit code."""
        known = {key: value for key, value in asdict(self).items() if value is not None}
        session = Session.model_validate(before.model_dump() | known)
        client.do(PutSession(session=session))
        return tell(f"session/{session.name} was {done}", **session.model_dump(mode="json"))


@command("ctl get sessions")
def list_sessions(at: Management) -> int:
    """List the sessions and their use."""
    with at.client() as client:
        return show(session_rows(Usage.of(client)))


@command("ctl session create", "lab --systems 2")
def create(name: _Name, size: Size, at: Management) -> int:
    """Set systems aside for some users."""
    with at.client() as client:
        if name in _sessions(client):
            raise ConfigError(
                "a new session must have a new name",
                code="name-taken",
                value=name,
                remedy="waferstream ctl session resize changes it",
            )
        return size.put(client, Session(name=name, systems=0), "created")


@command("ctl session resize", "lab --systems 3")
def resize(name: _Name, size: Size, at: Management) -> int:
    """Change a session while its jobs run."""
    with at.client() as client:
        sessions = _sessions(client)
        if name not in sessions:
            raise ConfigError(
                "the session must exist",
                code="unknown-session",
                value=name,
                remedy=did_you_mean(name, sessions) or "waferstream ctl get sessions",
            )
        return size.put(client, sessions[name], "resized")


def _sessions(client: Client) -> dict[str, Session]:
    return {each.name: each for each in client.do(ReadCluster()).sessions}


@command("ctl session delete", "lab")
def delete(name: _Name, at: Management) -> int:
    """Give back what a session has; its running jobs end as they are."""
    with at.client() as client:
        client.do(DeleteSession(name=name))
    return tell(f"session/{name} was deleted", name=name)
