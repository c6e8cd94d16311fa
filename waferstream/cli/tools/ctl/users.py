"""Users of a management, and the tokens that show who they are."""

from __future__ import annotations

import argparse
import getpass
import sys

from waferstream.cli.frame.output import tell
from waferstream.cli.tools.command import Command, argument
from waferstream.cli.tools.ctl.connection import MANAGEMENT_FLAGS, management
from waferstream.core.errors import ConfigError
from waferstream.management.client.address import keep_token
from waferstream.management.client.site import address_of, connect
from waferstream.management.model.operations import AddUser, ReadVersion, RevokeUser


def _add(given: argparse.Namespace) -> int:
    """Add a user, and print the token, which cannot be shown again."""
    asked = AddUser(
        name=given.name,
        role="administrator" if given.administrator else "user",
        groups=tuple(given.groups),
    )
    with management(given) as client:
        made = client.do(asked)
    return tell(made.token, user=made.user, token=made.token)


def _revoke(given: argparse.Namespace) -> int:
    with management(given) as client:
        count = client.do(RevokeUser(name=given.name))
    return tell(f"user/{given.name}: {count} tokens revoked", name=given.name, tokens=count)


def _login(given: argparse.Namespace) -> int:
    """Ask for a token, try it, and keep it for this user."""
    address = address_of(given.mgmt_address, given.credentials_path)
    if address is None:
        raise ConfigError("a management must be named", code="missing-key", where="--mgmt_address")
    is_typed = sys.stdin.isatty()
    token = getpass.getpass("Token: ") if is_typed else sys.stdin.readline()
    tried = address.model_copy(update={"token": token.strip()})
    client = connect(tried)
    try:
        client.do(ReadVersion())
    finally:
        client.close()
    path = keep_token(tried.address, tried.token)
    return tell(f"The token is kept in {path}", address=tried.address, path=str(path))


_NAME = argument("name", help="the user")

COMMANDS = (
    Command(
        "login",
        "keep the token of a management, which is asked for or read from standard input",
        _login,
        MANAGEMENT_FLAGS,
    ),
    Command(
        "user add",
        "let a user in, and print the new token once",
        _add,
        (
            _NAME,
            argument("--groups", nargs="+", default=(), help="groups, whose members share jobs"),
            argument("--administrator", action="store_true", help="may do everything"),
            *MANAGEMENT_FLAGS,
        ),
    ),
    Command("user revoke", "revoke all tokens of a user", _revoke, (_NAME, *MANAGEMENT_FLAGS)),
)
