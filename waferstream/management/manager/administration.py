"""What administrators change: sessions, nodes, users and their tokens."""

from __future__ import annotations

from typing import Any

from waferstream.core.errors import ConfigError
from waferstream.core.secrets import digest_of, new_secret
from waferstream.management.model import operations as ask
from waferstream.management.model.inventory import DEFAULT_SESSION, Session
from waferstream.management.model.operations import Caller, Operation
from waferstream.management.store.changes import Changes

TOKEN_PREFIX = "wst-"
"""How the token of a user begins."""


def administer(changes: Changes, operation: Operation[Any], now_s: float) -> Any:
    """Do what an administrator asks for.

    Raises:
        ConfigError: There is no such session, node or user, or not enough for a session.
    """
    match operation:
        case ask.PutSession():
            _check_fits(changes, operation.session)
            return changes.put_session(operation.session)
        case ask.DeleteSession():
            return changes.delete_session(operation.name)
        case ask.SetNode():
            return changes.set_node(operation.name, operation.state)
        case ask.AddUser():
            user = Caller(user=operation.name, role=operation.role, groups=operation.groups)
            return ask.NewToken(user=user.user, token=add_user(changes, user, now_s))
        case ask.RevokeUser():
            return _revoke(changes, operation.name, now_s)
    raise NotImplementedError(type(operation).__name__)


def add_user(changes: Changes, user: Caller, now_s: float) -> str:
    """Add a user, or change one, and return a new token; only its digest is kept."""
    token = new_secret(TOKEN_PREFIX)
    changes.put_user(user)
    changes.add_token(digest_of(token), user.user, now_s)
    return token


def _revoke(changes: Changes, name: str, now_s: float) -> int:
    known = [each.user for each in changes.users()]
    if name not in known:
        raise ConfigError(
            "the user must be known", code="unknown-user", value=name, rule=", ".join(known)
        )
    return changes.revoke(name, now_s)


def _check_fits(changes: Changes, session: Session) -> None:
    """Refuse a session that leaves others without what they have."""
    inventory = changes.inventory()
    others = [each for each in changes.sessions() if each.name != session.name]
    if session.name == DEFAULT_SESSION:
        raise ConfigError(
            "the default session has what no other session sets aside",
            code="name-taken",
            where="session",
            value=session.name,
        )
    if inventory is None:
        return
    left = {
        "systems": len(inventory.systems) - sum(each.systems for each in others),
        "groups": len(inventory.groups) - sum(each.groups for each in others),
    }
    for name, most in left.items():
        if getattr(session, name) > most:
            raise ConfigError(
                "a session must not have more than the others leave",
                code="session-too-large",
                where=f"session.{name}",
                value=getattr(session, name),
                rule=f"at most {most}",
                remedy="resize or delete another session (waferstream ctl get sessions)",
            )
