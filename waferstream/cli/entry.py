"""Entry point of the console command, of ``python -m waferstream`` and of run.py."""

from __future__ import annotations

from pathlib import Path

from waferstream.cli import INTERRUPTED


def run(home: Path | None = None) -> int:
    """Run the command line of this process and return its exit code.

    Args:
        home: Folder that is searched for cluster.yaml after the current one.
    """
    # An interrupt during the import of the command ends the process as quietly as a later one.
    try:
        from waferstream.cli.main import main  # noqa: PLC0415
    except KeyboardInterrupt:
        return INTERRUPTED
    return main(home=home)
