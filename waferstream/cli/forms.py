"""``waferstream train``, ``eval``, ``simulate``, ``trace`` and the vendor's forms of them."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from waferstream.cli.arguments import arguments_of, form_command
from waferstream.cli.frame.commands import WORDS
from waferstream.cli.run import run


def running_command(name: str) -> Any:
    """Return the command of a form, which does what it is told."""
    return form_command(name, _run)


def _run(ctx: Any) -> None:
    words = ctx.meta[WORDS]
    run(arguments_of(ctx, words), shlex.join([Path(sys.argv[0]).name, *words]))
