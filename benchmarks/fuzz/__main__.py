"""Feed mutated inputs to all parsers, and report what is not a typed error.

    python -m benchmarks.fuzz --inputs 1000000 --seed 1 --json benchmarks/results/fuzz.json

The exit code is 1 if there are findings. The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import logging
import os
import resource
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.fuzz.campaign import Outcome, run_target, shares
from benchmarks.fuzz.targets import all_targets
from waferstream.cli.frame.output import table
from waferstream.core.units import GIB
from waferstream.core.user_code import USER_CODE
from waferstream.host.files import write_json
from waferstream.host.user_state import STATE_FOLDER
from waferstream.reports.benchmark import new_file, new_result, positive

_MOST_MEMORY_BYTES = 16 * GIB  # address space of this process


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = _parser()
    given = parser.parse_args(argv)
    result = new_result("Do parsers answer hostile input with typed errors alone?")
    with TemporaryDirectory(prefix="waferstream-fuzz-") as folder, _apart(Path(folder) / "state"):
        targets = all_targets(Path(folder))
        names = [target.name for target in targets]
        if unknown := [name for name in given.only if name not in names]:
            parser.error(f"--only must name targets ({', '.join(names)}); got {unknown}")
        targets = tuple(t for t in targets if not given.only or t.name in given.only)
        outcomes = []
        for target, count in shares(targets, given.inputs):
            outcomes.append(run_target(target, count, given.seed))
            print(f"{target.name}: {outcomes[-1].seconds:.1f} s", flush=True)
    print(table([_row(outcome) for outcome in outcomes]))
    if given.json:
        write_json(given.json, {**result, "seed": given.seed, "results": outcomes})
    return int(any(outcome.findings for outcome in outcomes))


@contextmanager
def _apart(state: Path) -> Iterator[None]:
    """Keep files of strangers from the user's own code and key: a state folder for the block."""
    own = {USER_CODE: "refuse", STATE_FOLDER: str(state)}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _row(outcome: Outcome) -> dict[str, object]:
    return {
        "target": outcome.name,
        "inputs": outcome.inputs,
        "accepted": outcome.accepted,
        "typed errors": sum(outcome.refused.values()),
        "findings": sum(finding["count"] for finding in outcome.findings.values()),
        "kinds": "; ".join(outcome.findings),
        "seconds": round(outcome.seconds, 1),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--inputs", type=positive, default=10_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds make equal inputs")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TARGET", help="may be repeated"
    )
    parser.add_argument("--json", type=new_file, help="file for the result")
    return parser


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    sys.exit(main())
