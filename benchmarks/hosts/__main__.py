"""Measure what a cluster over several hosts costs: ``python -m benchmarks.hosts --json FILE``.

The hosts are network namespaces of this computer, so root is needed. What counts are ratios of
trainings side by side; a busy computer shifts the seconds of a start only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.hosts.figures import GOALS, Row, measure, verdict
from benchmarks.hosts.network import refusal
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write JSON; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument(
        "--figures", nargs="+", choices=list(GOALS), default=list(GOALS), help="what to measure"
    )
    parser.add_argument("--steps", type=positive, default=4, help="steps of a measurement")
    parser.add_argument("--repeats", type=positive, default=2, help="pairs of a ratio")
    parser.add_argument("--json", type=new_file, help="file for the result")
    options = parser.parse_args(arguments)
    if (reason := refusal()) is not None:
        print(f"not measured: {reason}", file=sys.stderr)
        return 1
    result = new_result("bytes, processor time, rate, start and plan of several hosts")
    rows: dict[str, list[Row]] = {}
    for figure, row in measure(options.figures, options.steps, options.repeats):
        print(figure, ", ".join(f"{key} {_shown(value)}" for key, value in row.items()), flush=True)
        rows.setdefault(figure, []).append(row)
    found = {
        figure: {**verdict(figure, measured), "rows": measured} for figure, measured in rows.items()
    }
    for figure, outcome in found.items():
        state = "reached" if outcome["reached"] else "missed"
        print(f"{figure}: {_shown(outcome['value'])}, {outcome['goal']}: {state}")
    if options.json is not None:
        write_json(options.json, result | {"figures": found})
    return 0


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
