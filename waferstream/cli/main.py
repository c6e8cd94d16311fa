"""Turn a command line into a finished run or one clear message.

Exit codes: 0 finished, 1 failed (of a comparison: the two differ), 2 the command line is wrong,
141 nobody reads what it would print. A command that trains, evaluates, simulates or runs a program
goes on without a reader. A signal (SIGHUP, SIGINT, SIGTERM) that ends the command ends the process,
too: a shell shows 129, 130 or 143, and leaves the loop that the command was in after Ctrl-C.

With ``--json`` standard output is one JSON value: the result, or ``{"error": ...}``.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from waferstream.cli import UNREAD
from waferstream.cli.arguments import parse_arguments
from waferstream.cli.check import CheckArguments, check_target, parse_check
from waferstream.cli.execute import ExecArguments, check_exec, parse_exec
from waferstream.cli.management import COMMAND as MANAGEMENT
from waferstream.cli.management import run_management
from waferstream.cli.run import run
from waferstream.cli.serving import COMMANDS as SERVING
from waferstream.cli.serving import run_serving
from waferstream.cli.tools.command import TOOLS, run_tool
from waferstream.core.errors import WaferStreamError
from waferstream.core.system_errors import file_error
from waferstream.host import tracebacks
from waferstream.host.files import json_text
from waferstream.host.interrupts import ending, exit_code, raising
from waferstream.host.standard_streams import ended_by_reader, outlasting_readers
from waferstream.host.terminal import log_to_terminal


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
            return _dispatch(words, home)
        finally:
            sys.stdout.flush()
    except WaferStreamError as error:
        if debug:
            raise
        _print_error(str(error), error.fields() if prints_json else None)
        return 1
    except KeyboardInterrupt as error:
        notes = getattr(error, "__notes__", [])
        print("\n" + " ".join([f"{ending(error)}.", *notes]), file=sys.stderr)
        raise
    except OSError as error:
        if debug:
            raise
        typed = file_error(error)
        _print_error(str(typed), typed.fields() if prints_json else None)
        return 1


def _dispatch(words: Sequence[str], home: Path) -> int:
    """Do what a command line says; return its exit code."""
    if words[:1] == ["exec"]:
        return _execute(parse_exec(words[1:], home))
    if words[:1] == ["check"]:
        return _check(parse_check(words[1:], home))
    if words[:1] == [MANAGEMENT]:
        return run_management(words[1:])
    if words and words[0] in SERVING:
        return run_serving(words)
    if words and words[0] in TOOLS:
        return run_tool(words[0], words[1:])
    run(parse_arguments(words, home), shlex.join([Path(sys.argv[0]).name, *words]))
    return 0


def _print_error(text: str, fields: dict[str, Any] | None) -> None:
    """Print an error; its fields as JSON, too, unless they are None."""
    if fields is not None:
        print(json_text({"error": fields}), flush=True)
    print(f"\nError: {text}", file=sys.stderr)


def _execute(arguments: ExecArguments) -> int:
    """Run a program; return its exit code."""
    log_to_terminal("INFO")
    check_exec(arguments)
    from waferstream.cli.programs import execute  # noqa: PLC0415  (torch)

    with outlasting_readers():
        return execute(arguments)


def _check(arguments: CheckArguments) -> int:
    """Check a program or params file, print the report; return 1 if a step is different."""
    log_to_terminal("WARNING")
    check_target(arguments)
    from waferstream.cli.checking import report_of  # noqa: PLC0415  (torch)

    report = report_of(arguments)
    print(json_text(report.fields()) if arguments.prints_json else "\n".join(report.lines()))
    return 1 if report.outcome == "different" else 0
