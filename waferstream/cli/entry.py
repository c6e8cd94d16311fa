"""Entry point of the console command, of ``python -m waferstream`` and of run.py."""

from __future__ import annotations

import gc
import io
import os
import sys
from pathlib import Path

from waferstream.host.interrupts import Death, end_quietly

_EXIT_S = 20
"""How long a process may take to end after a signal at its end."""

_ALLOCATIONS = 20_000
"""After how many new objects the youngest are looked through for garbage. Modules and the graphs of
steps stay: with Python's 700, a tenth of the time of imports and of a capture is such looking."""


def run(home: Path | None = None) -> int:
    """Run the command line of this process and return its exit code.

    A signal that has ended it also ends the process, once everything is cleaned up.

    Args:
        home: Folder that is searched for cluster.yaml after the current one.
    """
    _open_missing_streams()
    _escape_what_is_not_encoded()
    gc.set_threshold(_ALLOCATIONS)
    death = Death()
    try:
        from waferstream.cli.main import command  # noqa: PLC0415  (interrupted as quietly as it)

        return command(sys.argv[1:], home or Path())
    except KeyboardInterrupt as error:
        return death.of(error)
    finally:
        end_quietly(_EXIT_S)


def _open_missing_streams() -> None:
    """Open /dev/null for standard streams that are closed.

    Else the next files that it opens would have the numbers of these streams, here and in the
    processes that it starts.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115  (until the process ends)
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)  # which forks go back to


def _escape_what_is_not_encoded() -> None:
    """Print characters that the encoding of standard output lacks as escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
