"""Run the first steps of a program or params file beside plain PyTorch, in this process.

It imports torch, as ``waferstream.cli.programs`` does.
"""

from __future__ import annotations

import io
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from cstorch.cluster.config import Launch, launch
from cstorch.referee.program import check_program
from cstorch.referee.report import Report
from cstorch.witness import StepsDone, Witness
from waferstream.cli.arguments import parse_arguments
from waferstream.cli.programs import ProgramRun, execute, flags_of_a_new_process
from waferstream.cli.run import run


@dataclass(frozen=True)
class Check:
    """What is compared with plain PyTorch."""

    target: Path
    """A program, or a params file."""
    words: tuple[str, ...]
    """The program's own arguments, or flags of a run."""
    steps: int
    home: Path
    """Folder that is searched for cluster.yaml after the current one."""
    num_csx: int | None = None
    cluster: Path | None = None
    is_cluster_typed: bool = False
    prints_json: bool = False

    @property
    def is_params(self) -> bool:
        """Whether the target is a params file."""
        return self.target.suffix in (".yaml", ".yml")


def report_of(arguments: Check) -> Report:
    """Check a program or params file; return the report, errors as of ``check``."""

    def run_once(witness: Witness) -> None:
        _run(arguments, witness)

    return check_program(run_once, arguments.steps)


def _run(arguments: Check, witness: Witness) -> None:
    """Run the program anew, as in a new process, until the steps to watch are done."""
    with ExitStack() as stack:
        stack.enter_context(_as_at_first(arguments.target.parent.resolve()))
        if arguments.prints_json or arguments.is_params or witness.device is not None:
            stack.enter_context(redirect_stdout(io.StringIO()))
        try:
            code = (_run_params if arguments.is_params else _run_program)(arguments, witness)
        except StepsDone:
            return
    if code:
        raise SystemExit(code)


def _run_program(arguments: Check, witness: Witness) -> int:
    """Run a program; return its exit code."""
    program = ProgramRun(
        program=str(arguments.target),
        is_module=False,
        words=arguments.words,
        cluster=arguments.cluster,
        is_cluster_typed=arguments.is_cluster_typed,
        num_csx=arguments.num_csx,
    )
    return execute(program, witness)


def _run_params(arguments: Check, witness: Witness) -> int:
    """Train a params file from its first step in a folder that is removed; return 0."""
    words = ["--params", str(arguments.target), "--mode", "train", "--local"]
    words += ["--logging", "WARNING", *arguments.words]
    if arguments.num_csx is not None:
        words += ["--num_csx", str(arguments.num_csx)]
    if arguments.is_cluster_typed:
        words += ["--cluster", str(arguments.cluster)]
    with tempfile.TemporaryDirectory() as folder, flags_of_a_new_process():
        parsed = parse_arguments([*words, "--model_dir", folder], arguments.home)
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
