"""Whether errors are shown with every line of the tracer, or with those of the program only."""

from __future__ import annotations

import os
from contextvars import ContextVar

VARIABLE = "WAFERSTREAM_TRACEBACK"
"""The environment variable that asks for every line; ``--traceback`` does so for a command."""

asked: ContextVar[bool] = ContextVar("asked", default=False)
"""Whether the command line asks for every line."""


def shows_all() -> bool:
    """Return whether every line is to be shown."""
    return asked.get() or bool(os.environ.get(VARIABLE))
