"""What a management tells the processes that it launches, in their environment."""

from __future__ import annotations

import os

ADDRESS = "WAFERSTREAM_MANAGEMENT"
"""The management, such as ``127.0.0.1:9000``."""

TOKEN = "WAFERSTREAM_MANAGEMENT_TOKEN"
"""The token with which the process speaks for its workflow."""

WORKFLOW = "WAFERSTREAM_WORKFLOW"
"""The name of the workflow."""

SYSTEMS = "WAFERSTREAM_WORKFLOW_CSX"
"""The systems that the workflow asks for; the process may have fewer."""

DASHBOARD = "WAFERSTREAM_DASHBOARD"
"""The page of the workflow."""

RUNTIME_ADDRESS = "WAFERSTREAM_RUNTIME_ADDRESS"
"""The Ray cluster that a run joins, for ``runtime.address``."""


def launched_workflow() -> str | None:
    """Return the workflow that this process runs, None if its user has started it."""
    return os.environ.get(WORKFLOW) or None


def is_launched() -> bool:
    """Return whether a management has launched this process."""
    return launched_workflow() is not None
