"""The management that a verb asks, its users, and the tokens that show who they are."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import tell
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.management.client.address import keep_token
from waferstream.management.client.client import Client, EmbeddedClient
from waferstream.management.client.site import ADDRESS, CONFIGURATION, Address, address_of, connect
from waferstream.management.model.operations import AddUser, ListWorkflows, ReadVersion, RevokeUser


@dataclass(frozen=True)
class Management:
    """Flags that name a management."""

    mgmt_address: Annotated[
        str | None,
        Option(
            help=f"HOST:PORT of the management (default: ${ADDRESS}, or what ${CONFIGURATION} "
            "names; without any, the runs of this user)"
        ),
    ] = None
    credentials_path: Annotated[
        Path | None, Option(help="certificate that the management must have")
    ] = None

    @property
    def address(self) -> Address | None:
        """Where it is; None for that of this user alone."""
        return address_of(self.mgmt_address, self.credentials_path)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Enter a block with the management that the flags name, or that of this user alone."""
        address = self.address
        with closing(EmbeddedClient() if address is None else connect(address)) as client:
            yield client


def names_of_jobs(incomplete: str) -> list[str]:
    """Return the names of unfinished workflows and of their jobs that begin with a word.

    There are none where nobody answers.
    """
    names: list[str] = []
    with suppress(OSError, WaferStreamError), Management().client() as client:
        for workflow in client.do(ListWorkflows()):
            names += [workflow.name, *(job.name for job in workflow.jobs)]
    return [name for name in names if name.startswith(incomplete)]


Job = Annotated[
    str,
    Argument(help="the job, wsjob-..., or its workflow, wflow-...", autocompletion=names_of_jobs),
]


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
    role: Any = "administrator" if administrator else "user"
    with at.client() as client:
        made = client.do(AddUser(name=name, role=role, groups=tuple(groups or ())))
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
    token = getpass.getpass("Token: ") if sys.stdin.isatty() else sys.stdin.readline()
    tried = address.model_copy(update={"token": token.strip()})
    with closing(connect(tried)) as client:
        client.do(ReadVersion())
    path = keep_token(tried.address, tried.token)
    return tell(f"The token is kept in {path}", address=tried.address, path=str(path))
