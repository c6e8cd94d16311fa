"""``waferstream ctl completion``: what bash needs, as the vendor's command prints it."""

from __future__ import annotations

from typer.completion import get_completion_script  # type: ignore[attr-defined]

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.output import tell


@command("ctl completion")
def print_completion() -> int:
    """Print what bash needs to complete words: eval "$(waferstream ctl completion)"."""
    script = get_completion_script(
        prog_name="waferstream", complete_var="_WAFERSTREAM_COMPLETE", shell="bash"
    )
    return tell(script, script=script)
