"""``waferstream check``: the first steps of a program or params file beside plain PyTorch."""

from __future__ import annotations

import argparse
import io
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from waferstream.cli.arguments import cluster_file, parse_arguments
from waferstream.cli.execute import ExecArguments, execute, flags_of_a_new_process
from waferstream.cli.run import log_to_terminal, run
from waferstream.core.errors import ConfigError
from waferstream.host.files import json_text

if TYPE_CHECKING:
    from cstorch.referee.report import Report
    from cstorch.referee.witness import Witness

STEPS = 2


@dataclass(frozen=True)
class CheckArguments:
    """Parsed words after ``waferstream check``."""

    target: Path
    """A program, or a params file."""

    words: tuple[str, ...]
    """The program's own arguments, or flags of a run."""

    steps: int
    prints_json: bool
    cluster: Path | None
    is_cluster_typed: bool
    num_csx: int | None
    home: Path

    @property
    def is_params(self) -> bool:
        """Whether the target is a params file."""
        return self.target.suffix in (".yaml", ".yml")


def parse_check(argv: Sequence[str], home: Path, cwd: Path | None = None) -> CheckArguments:
    """Parse the words after ``waferstream check``; SystemExit with code 2 for wrong ones."""
    parser = check_parser()
    given = parser.parse_args(argv)
    for name in ("steps", "num_csx"):
        value = getattr(given, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be at least 1; got {value}")
    return CheckArguments(
        target=given.target,
        words=tuple(given.words),
        steps=given.steps,
        prints_json=given.json,
        cluster=cluster_file(given.cluster, (cwd or Path(), home)),
        is_cluster_typed=given.cluster is not None,
        num_csx=given.num_csx,
        home=home,
    )


def check_parser() -> argparse.ArgumentParser:
    """Build the argparse parser of ``waferstream check``."""
    parser = argparse.ArgumentParser(
        prog="waferstream check",
        usage="waferstream check [flags] (program.py | params.yaml) [arguments of the program]",
        description="Run the first steps of a training beside plain PyTorch on the whole batch: "
        "are losses, weights and buffers equal, close, or different? Exit code 1 if different.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--steps", type=int, default=STEPS, help=f"steps to compare (default: {STEPS})"
    )
    parser.add_argument("--cluster", help="YAML file of the machine")
    parser.add_argument("--num_csx", type=int, help="systems (overrides the program's number)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("target", type=Path, help="program, or params file")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, help="arguments of the program, or flags"
    )
    return parser


def check(arguments: CheckArguments) -> int:
    """Check a program or params file, print the report; return 1 if a step is different.

    Raises:
        SystemExit: The program failed.
        WaferStreamError: The program cannot be run, or not be compared.
    """
    log_to_terminal("WARNING")
    report = report_of(arguments)
    print(json_text(report.fields()) if arguments.prints_json else "\n".join(report.lines()))
    return 1 if report.outcome == "different" else 0


def report_of(arguments: CheckArguments) -> Report:
    """Check a program or params file; return the report, errors as of ``check``."""
    if not arguments.target.is_file():
        raise ConfigError(
            "the program must be a file",
            code="program-missing",
            value=arguments.target,
            remedy="name a program, or a params file (.yaml)",
        )
    # Importing torch takes seconds: report a wrong command line before that.
    from cstorch.referee.program import check_program  # noqa: PLC0415

    def run_once(witness: Witness) -> None:
        _run(arguments, witness)

    return check_program(run_once, arguments.steps)


def _run(arguments: CheckArguments, witness: Witness) -> None:
    """Run the program anew, as in a new process, until the steps to watch are done."""
    from cstorch.referee.witness import StepsDone  # noqa: PLC0415

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


def _run_program(arguments: CheckArguments, witness: Witness) -> int:
    """Run a program; return its exit code."""
    program = ExecArguments(
        program=str(arguments.target),
        is_module=False,
        words=arguments.words,
        cluster=arguments.cluster,
        is_cluster_typed=arguments.is_cluster_typed,
        num_csx=arguments.num_csx,
        trace=None,
    )
    return execute(program, witness)


def _run_params(arguments: CheckArguments, witness: Witness) -> int:
    """Train a params file from its first step in a folder that is removed; return 0."""
    from cstorch.cluster.config import Launch, launch  # noqa: PLC0415

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
    import numpy as np  # noqa: PLC0415
    import torch  # noqa: PLC0415

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
