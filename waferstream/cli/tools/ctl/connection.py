"""The management that a verb asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from waferstream.core.errors import WaferStreamError
from waferstream.management.client.client import Client, EmbeddedClient
from waferstream.management.client.site import ADDRESS, CONFIGURATION, Address, address_of, connect
from waferstream.management.model.operations import ListWorkflows


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
