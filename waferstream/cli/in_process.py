"""Run programs and params files in this process, each as in a new one.

It imports torch, which takes seconds: the command line is checked before it is imported.
"""

from __future__ import annotations

import io
import random
import runpy
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import torch

from appliance.user_code import imports_end_with, prepare_imports_with
from cstorch import flags
from cstorch.cluster.config import Launch, launch
from cstorch.current import existing_backend
from cstorch.referee.program import check_program
from cstorch.referee.report import Report
from cstorch.witness import StepsDone, Witness
from waferstream.cli.arguments import parse_arguments
from waferstream.cli.run import run
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.host.interrupts import deferred
from waferstream.host.tracebacks import shows_all

if TYPE_CHECKING:
    from waferstream.training.trace_request import TraceRequest

_END_S = 20
"""How long the cluster of a program may take to end after a signal."""

_VENDOR_NAMES = "waferstream_compat.import_hook"
"""Module that lets a program import the vendor's modules."""


def execute(
    program: str,
    words: Sequence[str],
    settings: Launch,
    witness: Witness | None = None,
    *,
    is_module: bool = False,
    trace: TraceRequest | None = None,
) -> int:
    """Run a program to its end, end its cluster, and return the exit code.

    Args:
        program: Its path, or the name of a module.
        words: Its own arguments.
        settings: What was typed of its cluster.
        witness: What watches its steps.
        is_module: Whether it is a module.
        trace: What is written at its end.

    An error of the program's own is printed with its traceback, one of this project as a message
    below the line of the program that met it.

    Raises:
        SystemExit: The program ended itself.
        KeyboardInterrupt: The user interrupted it.
        WaferStreamError: The program is missing, or the trace cannot be written.
    """
    settings = replace(settings, witness=witness)
    if trace is not None:
        trace.check()
        settings = replace(settings, trace_limit=trace.limit)
    folder = Path() if is_module else Path(program).parent
    with _flags_of_a_new_process(), _prepared([program, *words], folder, settings):
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
def _flags_of_a_new_process() -> Iterator[None]:
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


def report_of(
    run_once: Callable[[Witness], int], folder: Path, steps: int, *, is_quiet: bool
) -> Report:
    """Run a program as often as it takes to compare it with plain PyTorch; return the report.

    Args:
        run_once: Runs it as in a new process, and returns its exit code.
        folder: The folder of the program.
        steps: Steps to compare.
        is_quiet: Whether nothing that it prints is shown; else that of its first run is.

    Raises:
        SystemExit: It has ended with an error.
        WaferStreamError: As of ``check_program``.
    """

    def run_and_watch(witness: Witness) -> None:
        with ExitStack() as stack:
            stack.enter_context(_as_at_first(folder))
            if is_quiet or witness.device is not None:
                stack.enter_context(redirect_stdout(io.StringIO()))
            try:
                code = run_once(witness)
            except StepsDone:
                return
        if code:
            raise SystemExit(code)

    return check_program(run_and_watch, steps)


def train(params: Path, words: Sequence[str], home: Path, witness: Witness) -> int:
    """Train a params file from its first step in a folder that is removed; return 0."""
    flags = ["--params", f"{params}", "--mode=train", "--local", "--logging=WARNING"]
    with tempfile.TemporaryDirectory() as folder, _flags_of_a_new_process():
        parsed = parse_arguments([*flags, *words, "--model_dir", folder], home)
        token = launch.set(Launch(witness=witness))
        try:
            run(parsed, "check")
        finally:
            launch.reset(token)
    return 0


@contextmanager
def _as_at_first(folder: Path) -> Iterator[None]:
    """Take back what a program of a folder leaves here: random numbers, its own modules."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    modules = set(sys.modules)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])
        for name in set(sys.modules) - modules:
            if name.partition(".")[0] not in modules and _is_in(folder, name):
                del sys.modules[name]


def _is_in(folder: Path, module: str) -> bool:
    """Return whether a module is a file of a program's folder, and of no environment in it."""
    file = Path(getattr(sys.modules[module], "__file__", None) or "")
    return file.is_relative_to(folder) and "site-packages" not in file.parts
