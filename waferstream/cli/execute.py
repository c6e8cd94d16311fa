"""``waferstream exec``: run a program that was written for the real machine, unchanged."""

from __future__ import annotations

import argparse
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from waferstream.cli.arguments import cluster_file
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.host.interrupts import deferred
from waferstream.host.tracebacks import shows_all
from waferstream.machine.record import DEFAULT_LIMIT
from waferstream.training.trace_request import TraceRequest

if TYPE_CHECKING:
    from cstorch.referee.witness import Witness

_VENDOR_NAMES = "waferstream_compat.import_hook"
"""Module that lets a program import the vendor's modules."""

_END_S = 20
"""How long the cluster of a program may take to end after a signal."""


@dataclass(frozen=True)
class ExecArguments:
    """Parsed words after ``waferstream exec``."""

    program: str
    """Path of the program, or name of the module."""

    is_module: bool
    words: tuple[str, ...]
    """The program's own arguments."""

    cluster: Path | None
    """The cluster file; None where none was named and none was found."""

    is_cluster_typed: bool
    num_csx: int | None
    trace: TraceRequest | None


def parse_exec(argv: Sequence[str], home: Path, cwd: Path | None = None) -> ExecArguments:
    """Parse the words after ``waferstream exec``; SystemExit with code 2 for wrong ones."""
    parser = exec_parser()
    given = parser.parse_args(argv)
    words = given.module or given.program
    if not words:
        parser.error("name a program, or a module after -m")
    if given.num_csx is not None and given.num_csx < 1:
        parser.error(f"--num_csx must be at least 1; got {given.num_csx}")
    return ExecArguments(
        program=words[0],
        is_module=bool(given.module),
        words=tuple(words[1:]),
        cluster=cluster_file(given.cluster, (cwd or Path(), home)),
        is_cluster_typed=given.cluster is not None,
        num_csx=given.num_csx,
        trace=TraceRequest(given.trace, given.trace_limit) if given.trace else None,
    )


def exec_parser() -> argparse.ArgumentParser:
    """Build the argparse parser of ``waferstream exec``."""
    parser = argparse.ArgumentParser(
        prog="waferstream exec",
        usage="waferstream exec [flags] (program.py | -m module) [arguments of the program]",
        description="Run a program that imports cerebras.pytorch on an emulated cluster.",
        allow_abbrev=False,
    )
    parser.add_argument("--cluster", type=Path, help="YAML file of the machine")
    parser.add_argument("--num_csx", type=int, help="systems (overrides the program's number)")
    parser.add_argument(
        "--trace", type=Path, help="write a Perfetto trace of emulated and measured time"
    )
    parser.add_argument(
        "--trace_limit",
        type=int,
        default=DEFAULT_LIMIT,
        help=f"most activities of each clock in the trace (default: {DEFAULT_LIMIT:,})",
    )
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="program and its arguments")
    return parser


def execute(arguments: ExecArguments, witness: Witness | None = None) -> int:
    """Run the program to its end, end its cluster, and return the exit code.

    A ``witness`` watches its first steps.

    An error of the program's own is printed with its traceback, one of this project as a message
    below the line of the program that met it.

    Raises:
        SystemExit: The program ended itself.
        KeyboardInterrupt: The user interrupted it.
        WaferStreamError: The program or the cluster file is missing or malformed.
    """
    _check_program(arguments)
    _check_vendor_names()
    with flags_of_a_new_process(), _prepared(arguments, witness):
        try:
            with _traced(arguments.trace):
                if arguments.is_module:
                    _check_module(arguments.program)
                    runpy.run_module(arguments.program, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(arguments.program, run_name="__main__")
        except WaferStreamError as error:
            if shows_all():
                traceback.print_exception(error)
            _print_line(error.__traceback__)
            print(f"Error: {error}", file=sys.stderr)
            return 1
        except Exception as error:  # the program's own
            traceback.print_exception(error.with_traceback(_below_runpy(error.__traceback__)))
            return 1
    return 0


@contextmanager
def flags_of_a_new_process() -> Iterator[None]:
    """Start from the default flags; an earlier run in this process changes no bit."""
    # Importing torch takes seconds: a wrong command line is reported before that.
    from cstorch import flags  # noqa: PLC0415

    with flags.restored():
        flags.reset()
        yield


def _check_program(arguments: ExecArguments) -> None:
    if not arguments.is_module and not Path(arguments.program).is_file():
        raise ConfigError(
            "the program must be a file",
            code="program-missing",
            value=arguments.program,
            remedy="name the program's file, or a module after -m",
        )


def _check_vendor_names() -> None:
    if find_spec(_VENDOR_NAMES.partition(".")[0]) is None:
        raise ConfigError(
            "the vendor's names must be installed for programs that import them",
            code="package-missing",
            where="waferstream exec",
            value="waferstream_compat",
            remedy="pip install 'waferstream[compat]' (in a clone: "
            "pip install ./waferstream_compat)",
        )


@contextmanager
def _prepared(arguments: ExecArguments, witness: Witness | None) -> Iterator[None]:
    """Prepare imports, sys.argv and the cluster's settings; end the cluster and undo all of it."""
    # Importing torch takes seconds: report a wrong command line before that.
    import torch  # noqa: PLC0415

    from appliance.spec import load_cluster  # noqa: PLC0415
    from appliance.user_code import imports_end_with, prepare_imports_with  # noqa: PLC0415
    from cstorch.cluster.config import Launch, launch  # noqa: PLC0415
    from cstorch.current import existing_backend  # noqa: PLC0415

    if arguments.trace is not None:
        arguments.trace.check()
    settings = Launch(
        cluster=load_cluster(arguments.cluster) if arguments.cluster else None,
        is_cluster_typed=arguments.is_cluster_typed,
        num_csx=arguments.num_csx,
        trace_limit=arguments.trace.limit if arguments.trace else 0,
        witness=witness,
    )
    before = list(sys.argv), list(sys.path)
    folder = Path() if arguments.is_module else Path(arguments.program).parent
    sys.path.insert(0, str(folder.resolve()))
    sys.argv[:] = [arguments.program, *arguments.words]
    torch.set_num_threads(1)  # the cores belong to the cluster
    token = launch.set(settings)
    prepare_imports_with(_VENDOR_NAMES)
    try:
        yield
    finally:
        backend = existing_backend()
        if backend is not None:
            with deferred(_END_S):
                backend.shutdown()
        imports_end_with(_VENDOR_NAMES)
        launch.reset(token)
        sys.argv[:], sys.path[:] = before


def _check_module(name: str) -> None:
    """Refuse a module that cannot be found; the code of its packages runs."""
    if name.startswith(".") or name == "__main__" or not _is_found(name):
        raise ConfigError(
            "the module must be on the search path",
            code="program-missing",
            value=name,
            remedy="start the command in the folder that holds it, or set PYTHONPATH",
        )


def _is_found(name: str) -> bool:
    """Return whether a module exists; what the code of its packages raises is passed on."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise
        return False


def _traced(trace: TraceRequest | None) -> AbstractContextManager[None]:
    """Return the context that writes the trace of a program at its end."""
    from cstorch.current import existing_backend  # noqa: PLC0415

    return nullcontext() if trace is None else trace.writing(existing_backend)


def _below_runpy(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins in the program; None if it cannot be read."""
    below = trace
    while below is not None and (
        below.tb_frame.f_code.co_filename == __file__
        or below.tb_frame.f_globals.get("__name__") == "runpy"
    ):
        below = below.tb_next
    return below


def _print_line(trace: TracebackType | None) -> None:
    """Print the innermost line of the program in a traceback."""
    folder = Path(sys.path[0])
    frames = [f for f in traceback.extract_tb(trace) if Path(f.filename).resolve().parent == folder]
    if frames:
        print("".join(traceback.format_list(frames[-1:])), file=sys.stderr, end="")
