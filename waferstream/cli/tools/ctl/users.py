"""Users of a management, and the tokens that show who they are."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import tell
from waferstream.cli.tools.ctl.connection import Management
from waferstream.core.errors import ConfigError
from waferstream.management.client.address import keep_token
from waferstream.management.client.site import connect
from waferstream.management.model.operations import AddUser, ReadVersion, RevokeUser

_User = Annotated[str, Argument(help="the user")]


@command("ctl user add", "ann --administrator")
def add(
    *,
    name: _User,
    groups: Annotated[list[str] | None, Option(help="groups, whose members share jobs")] = None,
    administrator: Annotated[bool, Option(help="may do everything")] = False,
    at: Management,
) -> int:
    """Let a user in, and print the new token, which cannot be shown again."""
    asked = AddUser(
        name=name,
        role="administrator" if administrator else "user",
        groups=tuple(groups or ()),
    )
    with at.client() as client:
        made = client.do(asked)
    return tell(made.token, user=made.user, token=made.token)


@command("ctl user revoke", "ann")
def revoke(name: _User, at: Management) -> int:
    """Revoke all tokens of a user."""
    with at.client() as client:
        count = client.do(RevokeUser(name=name))
    return tell(f"user/{name}: {count} tokens revoked", name=name, tokens=count)


@command("ctl login", "--mgmt_address 127.0.0.1:9000")
def login(at: Management) -> int:
    """Keep the token of a management, which is asked for or read from standard input."""
    address = at.address
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
