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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from benchmarks.fuzz.campaign import Outcome, run_target, shares
from benchmarks.fuzz.targets import all_targets
from modelzoo.user_classes import USER_CODE
from waferstream.cli.tools import table
from waferstream.reports.benchmark import new_file, new_result, positive
from wsc.core.files import write_json
from wsc.core.units import GIB
from wsc.core.user_state import STATE_FOLDER

_MOST_MEMORY_BYTES = 16 * GIB  # address space of this process


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=positive, default=10_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], metavar="TARGET")
    parser.add_argument("--json", type=new_file)
    given = parser.parse_args(argv)
    result = new_result("Do parsers answer hostile input with typed errors alone?")
    with TemporaryDirectory() as folder:
        targets = [t for t in all_targets(Path(folder)) if not given.only or t.name in given.only]
        outcomes = []
        for target, count in shares(targets, given.inputs):
            outcomes.append(run_target(target, count, given.seed))
            print(f"{target.name}: {outcomes[-1].seconds:.1f} s", flush=True)
    print(table([_row(outcome) for outcome in outcomes]))
    if given.json:
        results = [asdict(outcome) for outcome in outcomes]
        write_json(given.json, {**result, "seed": given.seed, "results": results})
    return int(any(outcome.findings for outcome in outcomes))


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


if __name__ == "__main__":
    os.environ[USER_CODE] = "refuse"  # else a params file could name any function
    os.environ[STATE_FOLDER] = mkdtemp(prefix="waferstream-fuzz-")  # for a key of its own
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    sys.exit(main())
