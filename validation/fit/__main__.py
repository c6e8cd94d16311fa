"""Fit constants to calibration rows, and show what each of them rests on.

    python -m validation.fit [--family NAME [--row_ids ID ...]] [--rows FILE.csv ...]

Prints the constants of every family beside the values in use, the error of every row with all rows
and with those of its model left out and, without --family, what each fitted constant of the house
rests on. Changes nothing: edit a constant in its class, with status "fitted" and the rows as its
source. The exit status is 1 if a requested row is not marked calibration, or if a fitted constant
breaks the rule of ``validation.report.rule``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from validation.families.prediction import Family
from validation.families.registry import FAMILIES
from validation.fit.calibration import Fit
from validation.fit.evaluation import evaluate, evaluate_all, members
from validation.fit.registry import FITS
from validation.report.rule import MOST_CONSTANTS, broken, house_supports, support_table
from validation.rows.reader import add_rows, check_unique, read_rows
from validation.rows.row import Row
from waferstream.core.errors import ConfigError, WaferStreamError, did_you_mean


def main(
    arguments: Sequence[str] | None = None,
    families: Sequence[Family] = FAMILIES,
    fits: Sequence[Fit] = FITS,
) -> int:
    """Fit and print; return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.row_ids and options.family is None:
        parser.error("--row_ids requires --family")
    try:
        rows = [row for path in options.rows for row in read_rows(path)]
        check_unique(rows)
        if options.family is None:
            return _print_all(rows, families, fits)
        fit = _fit_of(options.family, fits)
        chosen = _chosen(members(rows, fit.family, families), options.row_ids)
        print(evaluate(fit, chosen).text())
    except WaferStreamError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _print_all(rows: Sequence[Row], families: Sequence[Family], fits: Sequence[Fit]) -> int:
    """Print all families, then the rule; return 1 if a constant breaks it."""
    for evaluated in evaluate_all(fits, rows, families):
        print(f"{evaluated.text()}\n", flush=True)
    found = house_supports()
    print(f"fitted constants: {len(found)} of {MOST_CONSTANTS} at most")
    print(support_table(found).text())
    complaints = broken(found)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def _fit_of(name: str, fits: Sequence[Fit]) -> Fit:
    names = [fit.family for fit in fits]
    if name not in names:
        raise ConfigError(
            f"no family {name!r} has fitted constants",
            code="unknown-family",
            where="--family",
            value=name,
            rule=f"one of {', '.join(names) or 'none'}",
            remedy=did_you_mean(name, names),
        )
    return fits[names.index(name)]


def _chosen(known: Sequence[Row], ids: Sequence[str] | None) -> list[Row]:
    """Return the requested rows; without ``ids`` all calibration rows."""
    if ids is None:
        return [row for row in known if row.use == "calibration"]
    by_id = {row.row_id: row for row in known}
    if unknown := [one for one in ids if one not in by_id]:
        raise ConfigError(
            f"the family has no row {unknown[0]}",
            code="unknown-row",
            where="--row_ids",
            value=unknown[0],
            rule=f"one of {', '.join(by_id) or 'none'}",
        )
    return [by_id[one] for one in dict.fromkeys(ids)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation.fit", description=(__doc__ or "").partition("\n")[0]
    )
    add_rows(parser)
    parser.add_argument("--family", metavar="NAME", help="family to fit (default: all)")
    parser.add_argument(
        "--row_ids", nargs="+", metavar="ID", help="rows to fit to (default: all calibration rows)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
