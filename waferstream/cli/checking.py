"""Run the first steps of a program or params file beside plain PyTorch, in this process.

It imports torch, as ``waferstream.cli.programs`` does.
"""

from __future__ import annotations

import io
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from cstorch.cluster.config import Launch, launch
from cstorch.referee.program import check_program
from cstorch.referee.report import Report
from cstorch.witness import StepsDone, Witness
from waferstream.cli.arguments import parse_arguments
from waferstream.cli.programs import execute, flags_of_a_new_process
from waferstream.cli.run import run


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


def run_program(program: str, words: Sequence[str], settings: Launch, witness: Witness) -> int:
    """Run a program while a witness watches; return its exit code."""
    return execute(program, words, replace(settings, witness=witness))


def train(params: Path, words: Sequence[str], home: Path, witness: Witness) -> int:
    """Train a params file from its first step in a folder that is removed; return 0."""
    flags = ["--params", f"{params}", "--mode=train", "--local", "--logging=WARNING"]
    with tempfile.TemporaryDirectory() as folder, flags_of_a_new_process():
        parsed = parse_arguments([*flags, *words, "--model_dir", folder], home)
        token = launch.set(Launch(witness=witness))
        try:
            run(parsed, "check")
        finally:
            launch.reset(token)
    return 0


@contextmanager
def _as_at_first(folder: Path) -> Iterator[None]:
    """Take back what a program leaves in this process: random numbers, its own modules.

    Args:
        folder: The folder of the program.
    """
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
