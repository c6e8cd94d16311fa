"""Compare predictions with published measurements.

    python -m validation [--rows FILE.csv ...] [--json FILE] [--residuals] [--check]

Predicts every row that a benchmark family knows, prints it beside the published value, and lists
skipped rows with the reason. The exit status is 1 if a file is malformed or a prediction fails or,
with --check, if a goal is missed, a fitted constant names a row that is not calibration, or rests
on too few; else 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from validation.families.prediction import Family
from validation.families.registry import FAMILIES
from validation.paper.document import write_document, write_error_table
from validation.paper.evidence import Evidence
from validation.report.picture import fidelity_picture
from validation.report.report import Report, calibrated_rows
from validation.report.rule import broken, house_supports
from validation.rows.reader import add_rows
from waferstream.core.errors import WaferStreamError
from waferstream.host.files import write_json
from waferstream.machine.intervals import RESIDUALS
from waferstream.reports.benchmark import new_file

_NOTES = Path(__file__).parents[1] / "docs" / "fidelity_notes.md"


def main(arguments: Sequence[str] | None = None, families: Sequence[Family] = FAMILIES) -> int:
    """Predict, print, write the requested files; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        report = Report.of(options.rows, families)
        if options.residuals is not None:
            report.residuals.write(options.residuals)
        print(report.text())
        _write(options, report, families)
    except WaferStreamError as error:
        print(error, file=sys.stderr)
        return 1
    return _verdict(report, options.check)


def _write(options: argparse.Namespace, report: Report, families: Sequence[Family]) -> None:
    if options.json is not None:
        write_json(options.json, report.as_json())
    if options.picture is not None:
        fidelity_picture(options.picture, report.by_family, calibrated_rows())
    if options.markdown is not None:
        write_document(
            options.markdown, report, Evidence.of(report, families), _NOTES, options.picture
        )
    if options.readme is not None:
        write_error_table(options.readme, report)


def _verdict(report: Report, check: bool) -> int:
    failed = [outcome.row.row_id for outcome in report.predictions.failed]
    if failed:
        print(f"bug: predictions failed on {', '.join(failed)}", file=sys.stderr)
    complaints = _complaints(report) if check else []
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if failed or complaints else 0


def _complaints(report: Report) -> list[str]:
    missed = [f"missed: {goal.name}, {goal}" for goal, _ in report.missed]
    misfitted = [
        f"fitted to a row that is not calibration: {constant.holder}.{constant.name}, {row_id}"
        for constant, row_id in report.misfitted
    ]
    return missed + misfitted + broken(house_supports())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation", description=(__doc__ or "").partition("\n")[0]
    )
    add_rows(parser)
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the report as data")
    parser.add_argument("--markdown", type=new_file, metavar="FILE", help="write it as a page")
    parser.add_argument("--picture", type=new_file, metavar="FILE", help="draw it as PNG")
    parser.add_argument(
        "--readme", type=new_file, metavar="FILE", help="replace the error table of a page"
    )
    parser.add_argument(
        "--residuals",
        type=Path,
        nargs="?",
        const=RESIDUALS,
        metavar="FILE",
        help="write the errors from which intervals of predictions follow "
        "(default: where the program reads them)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="fail if a goal is missed, or a constant is fitted to the wrong rows",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
