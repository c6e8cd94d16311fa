"""Turn a command line into a finished run or one clear message.

Exit codes: 0 finished, 1 failed (of a comparison: the two differ), 2 the command line is wrong,
141 nobody reads what it would print. A command that trains, evaluates, simulates or runs a program
goes on without a reader. A signal (SIGHUP, SIGINT, SIGTERM) that ends the command ends the process,
too: a shell shows 129, 130 or 143, and leaves the loop that the command was in after Ctrl-C.

With ``--json`` standard output is one JSON value: the result, or ``{"error": ...}``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import copy_context
from pathlib import Path

from waferstream.cli import UNREAD
from waferstream.cli.app import call
from waferstream.cli.frame.commands import Refusal
from waferstream.core.errors import WaferStreamError
from waferstream.core.extras import of_training
from waferstream.core.system_errors import file_error
from waferstream.host import tracebacks
from waferstream.host.files import json_text
from waferstream.host.interrupts import ending, exit_code, raising
from waferstream.host.standard_streams import ended_by_reader

_PAGE = "docs/troubleshooting.md says by code what to do"


def main(words: Sequence[str], home: Path | None = None) -> int:
    """Run a command line and return its exit code; that of a signal is 128 and its number.

    Args:
        words: What follows the program's name.
        home: Folder that is searched for cluster.yaml after the current one.
    """
    try:
        return command(words, home or Path())
    except KeyboardInterrupt as error:
        return exit_code(error)


def command(words: Sequence[str], home: Path) -> int:
    """Do what a command line says, print why that fails, and return the exit code.

    Raises:
        KeyboardInterrupt: A signal has ended it, which is printed already.
    """
    with raising(), ended_by_reader(UNREAD):
        return _exit_code(words, home)


def _exit_code(words: Sequence[str], home: Path) -> int:
    is_exec = words[:1] == ["exec"]
    debug = not {"--debug", "--traceback"}.isdisjoint(words) and not is_exec
    tracebacks.asked.set(debug)
    prints_json = "--json" in words and not is_exec
    try:
        try:
            return copy_context().run(call, words, home)  # settings of one command end with it
        finally:
            sys.stdout.flush()
    except WaferStreamError as error:
        if debug:
            raise
        _print_error(error, prints_json)
        return 1
    except Refusal as refusal:  # which is printed as text already
        if prints_json:
            _print_json(refusal.error)
        raise
    except KeyboardInterrupt as error:
        notes = getattr(error, "__notes__", [])
        print("\n" + " ".join([f"{ending(error)}.", *notes]), file=sys.stderr)
        raise
    except (OSError, ModuleNotFoundError) as error:
        typed = file_error(error) if isinstance(error, OSError) else of_training(error)
        if debug or typed is None:
            raise
        _print_error(typed, prints_json)
        return 1


def _print_error(error: WaferStreamError, prints_json: bool) -> None:
    """Print an error, as JSON, too, if that was asked for; without a remedy where to read more."""
    if prints_json:
        _print_json(error)
    more = "" if error.remedy else f"\n  more: {_PAGE}"
    print(f"\nError: {error}{more}", file=sys.stderr)


def _print_json(error: WaferStreamError) -> None:
    print(json_text({"error": error.fields()}), flush=True)
