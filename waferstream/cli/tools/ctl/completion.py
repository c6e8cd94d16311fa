"""``waferstream ctl completion``: what bash needs, as the vendor's command prints it."""

from __future__ import annotations

import argparse

from typer.completion import get_completion_script  # type: ignore[attr-defined]

from waferstream.cli.frame.output import tell
from waferstream.cli.tools.command import Command


def _completion(_given: argparse.Namespace) -> int:
    """Print the script."""
    script = get_completion_script(
        prog_name="waferstream", complete_var="_WAFERSTREAM_COMPLETE", shell="bash"
    )
    return tell(script, script=script)


COMMANDS = (
    Command(
        "completion",
        'print what bash needs to complete words: eval "$(waferstream ctl completion)"',
        _completion,
    ),
)
