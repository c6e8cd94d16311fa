"""The verbs of ``waferstream ctl``."""

from __future__ import annotations

from waferstream.cli.tools.ctl import (
    cluster,
    completion,
    files,
    host,
    jobs,
    sessions,
    users,
    what_if,
)

COMMANDS = (
    *jobs.COMMANDS,
    *files.COMMANDS,
    *cluster.COMMANDS,
    *host.COMMANDS,
    *sessions.COMMANDS,
    *users.COMMANDS,
    *what_if.COMMANDS,
    *completion.COMMANDS,
)
