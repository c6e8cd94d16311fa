"""``waferstream check``: the first steps of a program or params file beside plain PyTorch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from waferstream.cli.execute import check_vendor_names
from waferstream.cli.frame.files import cluster_file
from waferstream.core.errors import ConfigError

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


def check_target(arguments: CheckArguments) -> None:
    """Raise ConfigError where there is nothing to check, before torch is imported."""
    if not arguments.target.is_file():
        raise ConfigError(
            "the program must be a file",
            code="program-missing",
            value=arguments.target,
            remedy="name a program, or a params file (.yaml)",
        )
    if not arguments.is_params:
        check_vendor_names()
