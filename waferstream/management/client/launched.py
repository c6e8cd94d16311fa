"""What a process that a management has launched knows of it."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from waferstream.management.model.launched import ADDRESS, TOKEN

if TYPE_CHECKING:
    from waferstream.management.client.client import Client


@cache
def launched_client() -> Client | None:
    """Return the connection to the management that has launched this process, None without one."""
    if not os.environ.get(ADDRESS):
        return None
    from waferstream.management.client.remote import RemoteClient  # noqa: PLC0415  (gRPC)

    return RemoteClient(os.environ[ADDRESS], os.environ.get(TOKEN, ""))
