"""Run a program in this process, as ``waferstream exec`` does.

It imports torch, which takes seconds: the command line is checked before it is imported.
"""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import torch

from appliance.user_code import imports_end_with, prepare_imports_with
from cstorch import flags
from cstorch.cluster.config import Launch, launch
from cstorch.current import existing_backend
from waferstream.cli.vendor_names import VENDOR_NAMES
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.host.interrupts import deferred
from waferstream.host.tracebacks import shows_all

if TYPE_CHECKING:
    from waferstream.training.trace_request import TraceRequest

_END_S = 20
"""How long the cluster of a program may take to end after a signal."""


def execute(
    program: str,
    words: Sequence[str],
    settings: Launch,
    *,
    is_module: bool = False,
    trace: TraceRequest | None = None,
) -> int:
    """Run a program to its end, end its cluster, and return the exit code.

    Args:
        program: Its path, or the name of a module.
        words: Its own arguments.
        settings: What was typed of its cluster.
        is_module: Whether it is a module.
        trace: What is written at its end.

    An error of the program's own is printed with its traceback, one of this project as a message
    below the line of the program that met it.

    Raises:
        SystemExit: The program ended itself.
        KeyboardInterrupt: The user interrupted it.
        WaferStreamError: The program is missing, or the trace cannot be written.
    """
    if trace is not None:
        trace.check()
        settings = replace(settings, trace_limit=trace.limit)
    folder = Path() if is_module else Path(program).parent
    with flags_of_a_new_process(), _prepared([program, *words], folder, settings):
        try:
            with nullcontext() if trace is None else trace.writing(existing_backend):
                if is_module:
                    _check_module(program)
                    runpy.run_module(program, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(program, run_name="__main__")
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
def _prepared(words: Sequence[str], folder: Path, settings: Launch) -> Iterator[None]:
    """Prepare imports, sys.argv and the cluster's settings; end the cluster and undo all of it."""
    before = list(sys.argv), list(sys.path)
    sys.path.insert(0, str(folder.resolve()))
    sys.argv[:] = words
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
