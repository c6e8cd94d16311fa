"""Fit the constants of a family to its calibration rows.

    python -m validation.fit --family NAME [--rows FILE.csv ...] [--row_ids ID ...]

Prints every constant beside the value in use, and the error of every row. Changes nothing: edit a
constant in its class, with status "fitted" and the rows as its source. The exit status is 1 if a
requested row is not marked calibration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from validation.families.prediction import Family, Predictions, family_of
from validation.families.registry import FAMILIES
from validation.fit.calibration import Constants, Fit, calibrate
from validation.fit.registry import FITS
from validation.report.constants import constants
from validation.report.summary import belongs, row_table
from validation.report.tables import Table, number
from validation.rows.reader import add_rows, check_unique, read_rows
from validation.rows.row import Row
from waferstream.core.errors import ConfigError, WaferStreamError, did_you_mean


def main(
    arguments: Sequence[str] | None = None,
    families: Sequence[Family] = FAMILIES,
    fits: Sequence[Fit] = FITS,
) -> int:
    """Fit and print; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        rows = [row for path in options.rows for row in read_rows(path)]
        check_unique(rows)
        fit = _fit_of(options.family, fits)
        chosen = _chosen(_members(rows, fit.family, families), options.row_ids)
        print(_text(calibrate(fit, chosen), Predictions.of(chosen, families)))
    except WaferStreamError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


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


def _members(rows: Sequence[Row], name: str, families: Sequence[Family]) -> list[Row]:
    """Return the rows of a family, assigned as in the report."""
    found = [(row, family_of(row.described(), families)) for row in rows]
    return [row for row, family in found if family is not None and belongs(family.name, name)]


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
    return [by_id[one] for one in ids]


def _text(fitted: Constants, now: Predictions) -> str:
    lines = [(name, number(value, 6), _in_use(name)) for name, value in fitted.items()]
    parts = [Table(("constant", "fitted", "in use"), lines, frozenset({1})).text()]
    if now.compared:
        parts.append(row_table(now.compared).text())
    parts += [f"{one.row.row_id} is skipped: {one.reason}" for one in now.skipped]
    parts += [f"bug on {one.row.row_id}: {one.bug}" for one in now.failed]
    return "\n\n".join(parts)


def _in_use(name: str) -> str:
    found = [f"{one.holder} {one.shown}" for one in constants() if one.called(name)]
    return ", ".join(found) or "no constant of this name"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation.fit", description=(__doc__ or "").partition("\n")[0]
    )
    add_rows(parser)
    parser.add_argument("--family", required=True, metavar="NAME", help="family to fit")
    parser.add_argument(
        "--row_ids", nargs="+", metavar="ID", help="rows to fit to (default: all calibration rows)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
