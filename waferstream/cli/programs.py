"""Run a program in this process, as ``waferstream exec`` does.

It imports torch, which takes seconds: the command line is checked before it is imported.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import torch

from appliance.spec import load_cluster
from appliance.user_code import imports_end_with, prepare_imports_with
from cstorch import flags
from cstorch.cluster.config import Launch, launch
from cstorch.current import existing_backend
from waferstream.cli.vendor_names import VENDOR_NAMES
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.host.interrupts import deferred
from waferstream.host.tracebacks import shows_all

if TYPE_CHECKING:
    from cstorch.witness import Witness
    from waferstream.training.trace_request import TraceRequest

_END_S = 20
"""How long the cluster of a program may take to end after a signal."""


@dataclass(frozen=True)
class ProgramRun:
    """A program to run, and on which cluster."""

    program: str
    """Path of the program, or name of the module."""
    is_module: bool
    words: tuple[str, ...]
    """The program's own arguments."""
    cluster: Path | None
    """The cluster file; None where none was named and none was found."""
    is_cluster_typed: bool
    num_csx: int | None
    trace: TraceRequest | None = None
    mgmt_address: str | None = None
    credentials_path: Path | None = None


def execute(arguments: ProgramRun, witness: Witness | None = None) -> int:
    """Run the program to its end, end its cluster, and return the exit code.

    A ``witness`` watches its first steps.

    An error of the program's own is printed with its traceback, one of this project as a message
    below the line of the program that met it.

    Raises:
        SystemExit: The program ended itself.
        KeyboardInterrupt: The user interrupted it.
        WaferStreamError: The program or the cluster file is missing or malformed.
    """
    trace = arguments.trace
    with flags_of_a_new_process(), _prepared(arguments, witness):
        try:
            with nullcontext() if trace is None else trace.writing(existing_backend):
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
    with flags.restored():
        flags.reset()
        yield


@contextmanager
def _prepared(arguments: ProgramRun, witness: Witness | None) -> Iterator[None]:
    """Prepare imports, sys.argv and the cluster's settings; end the cluster and undo all of it."""
    if arguments.trace is not None:
        arguments.trace.check()
    settings = Launch(
        cluster=load_cluster(arguments.cluster) if arguments.cluster else None,
        is_cluster_typed=arguments.is_cluster_typed,
        num_csx=arguments.num_csx,
        mgmt_address=arguments.mgmt_address,
        credentials_path=arguments.credentials_path,
        trace_limit=arguments.trace.limit if arguments.trace else 0,
        witness=witness,
    )
    before = list(sys.argv), list(sys.path)
    folder = Path() if arguments.is_module else Path(arguments.program).parent
    sys.path.insert(0, str(folder.resolve()))
    sys.argv[:] = [arguments.program, *arguments.words]
    torch.set_num_threads(1)  # the cores belong to the cluster
    token = launch.set(settings)
    prepare_imports_with(VENDOR_NAMES)
    try:
        yield
    finally:
        backend = existing_backend()
        if backend is not None:
            with deferred(_END_S):
                backend.shutdown()
        imports_end_with(VENDOR_NAMES)
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
