"""The management that a verb asks."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from waferstream.cli.tools.command import argument
from waferstream.core.errors import WaferStreamError
from waferstream.management.client.client import Client, EmbeddedClient
from waferstream.management.client.site import ADDRESS, CONFIGURATION, address_of, connect
from waferstream.management.model.operations import ListWorkflows

MANAGEMENT_FLAGS = (
    argument(
        "--mgmt_address",
        help=f"HOST:PORT of the management (default: ${ADDRESS}, or what ${CONFIGURATION} names; "
        "without any, the runs of this user)",
    ),
    argument("--credentials_path", type=Path, help="certificate that the management must have"),
)


@contextmanager
def management(given: argparse.Namespace) -> Iterator[Client]:
    """Enter a block with the management that the flags name, or else that of this user alone."""
    address = address_of(given.mgmt_address, given.credentials_path)
    with closing(EmbeddedClient() if address is None else connect(address)) as client:
        yield client


def names_of_jobs(incomplete: str) -> list[str]:
    """Return the names of unfinished workflows and of their jobs that begin with a word.

    There are none where nobody answers.
    """
    names: list[str] = []
    given = argparse.Namespace(mgmt_address=None, credentials_path=None)
    with suppress(OSError, WaferStreamError), management(given) as client:
        for workflow in client.do(ListWorkflows()):
            names += [workflow.name, *(job.name for job in workflow.jobs)]
    return [name for name in names if name.startswith(incomplete)]
