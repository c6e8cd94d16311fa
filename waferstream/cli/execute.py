"""``waferstream exec``: run a program that was written for the real machine, unchanged."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from waferstream.cli.frame.files import cluster_file
from waferstream.core.errors import ConfigError
from waferstream.machine.record import DEFAULT_LIMIT
from waferstream.training.trace_request import TraceRequest

VENDOR_NAMES = "waferstream_compat.import_hook"
"""Module that lets a program import the vendor's modules."""


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
    mgmt_address: str | None = None
    credentials_path: Path | None = None


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
        mgmt_address=given.mgmt_address,
        credentials_path=given.credentials_path,
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
    parser.add_argument("--mgmt_address", help="host:port of a cluster that runs elsewhere")
    parser.add_argument(
        "--credentials_path", type=Path, help="file with the right to use that cluster"
    )
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


def check_exec(arguments: ExecArguments) -> None:
    """Raise ConfigError where a program cannot be run, before torch is imported."""
    if not arguments.is_module and not Path(arguments.program).is_file():
        raise ConfigError(
            "the program must be a file",
            code="program-missing",
            value=arguments.program,
            remedy="name the program's file, or a module after -m",
        )
    check_vendor_names()


def check_vendor_names() -> None:
    """Raise ConfigError where a program cannot import the vendor's names."""
    if find_spec(VENDOR_NAMES.partition(".")[0]) is None:
        raise ConfigError(
            "the vendor's names must be installed for programs that import them",
            code="package-missing",
            where="waferstream exec",
            value="waferstream_compat",
            remedy="pip install 'waferstream[compat]' (in a clone: "
            "pip install ./waferstream_compat)",
        )
