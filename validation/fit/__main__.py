"""Fit the constants of a family to its calibration rows, and to no others.

    python -m validation.fit --family NAME [--rows FILE.csv ...] [--row_ids ID ...]

Prints every constant beside the value that the emulator has now, and how far the emulator is from
every row. It changes nothing: a constant that is to change is written where it stands, with status
"fitted" and the rows as its source. Exit status 1 if a row is asked for that is not calibration.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from validation.families.registry import FAMILIES, FITS
from validation.families.replay import CannotReplay, Family, Fit
from validation.families.replays import Replays, family_of
from validation.fit.constants import constants
from validation.report.summary import belongs
from validation.report.tables import aligned, number
from validation.report.text import RIGHT_OF_ROW, ROW_HEADER, row_cells
from validation.rows.row import PUBLISHED, Row, check_unique, read_rows
from wsc.core.errors import ConfigError, WaferStreamError, did_you_mean


def main(
    arguments: Sequence[str] | None = None,
    families: Sequence[Family] = FAMILIES,
    fits: Sequence[Fit] = FITS,
) -> int:
    """Fit and print; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        rows = [row for path in options.rows for row in read_rows(path)]
        check_unique(rows)
        fit = _fit_of(options.family, fits)
        chosen = _chosen(_members(rows, fit.family, families), options.row_ids)
        print(_text(calibrate(fit, chosen), Replays.of(chosen, families)))
    except WaferStreamError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def calibrate(fit: Fit, rows: Sequence[Row]) -> dict[str, float]:
    """Constants by name.

    ConfigError if there is no row, or one that is not calibration, has no positive number, or does
    not tell what the model needs to know.
    """
    if not rows:
        raise ConfigError(
            "there is nothing to fit to", where=fit.family, rule="at least one calibration row"
        )
    for row in rows:
        _check(row)
    try:
        return fit.fit(rows)
    except CannotReplay as reason:
        raise ConfigError(
            "a row cannot be fitted", where=fit.family, value=reason, remedy="choose with --row_ids"
        ) from reason


def _check(row: Row) -> None:
    if row.use != "calibration":
        raise ConfigError(
            "this row must not be fitted",
            where=f"{row.place}, field use",
            value=row.use,
            rule="constants are fitted to calibration rows alone",
            remedy="leave the row out",
        )
    if isinstance(row.value, str) or row.value <= 0:
        raise ConfigError(
            "a row to fit has no positive number",
            where=f"{row.place}, field value",
            value=row.value,
            rule="more than 0",
            remedy="leave the row out",
        )


def _fit_of(name: str, fits: Sequence[Fit]) -> Fit:
    names = [fit.family for fit in fits]
    if name not in names:
        raise ConfigError(
            "no such family has fitted constants",
            where="--family",
            value=name,
            rule=f"one of {', '.join(names) or 'none'}",
            remedy=did_you_mean(name, names),
        )
    return fits[names.index(name)]


def _members(rows: Sequence[Row], name: str, families: Sequence[Family]) -> list[Row]:
    """The rows of a family, told apart as the report does."""
    found = [(row, family_of(row.described(), families)) for row in rows]
    return [row for row, family in found if family is not None and belongs(family.name, name)]


def _chosen(known: Sequence[Row], ids: Sequence[str] | None) -> list[Row]:
    """The rows asked for; without ``ids`` all calibration rows."""
    if ids is None:
        return [row for row in known if row.use == "calibration"]
    by_id = {row.row_id: row for row in known}
    if strange := [one for one in ids if one not in by_id]:
        raise ConfigError(
            "no such row in the family",
            where="--row_ids",
            value=strange[0],
            rule=f"one of {', '.join(by_id) or 'none'}",
        )
    return [by_id[one] for one in ids]


def _text(fitted: dict[str, float], now: Replays) -> str:
    lines = [(name, number(value, 6), _now(name)) for name, value in fitted.items()]
    parts = [aligned(("constant", "fitted", "now"), lines, frozenset({1}))]
    if now.compared:
        parts.append(aligned(ROW_HEADER, row_cells(now.compared), RIGHT_OF_ROW))
    parts += [f"{one.row.row_id} is not compared: {one.reason}" for one in now.listed]
    parts += [f"bug on {one.row.row_id}: {one.bug}" for one in now.failed]
    return "\n\n".join(parts)


def _now(name: str) -> str:
    found = [f"{one.holder} {one.shown}" for one in constants() if one.called(name)]
    return ", ".join(found) or "no constant of this name"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation.fit", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        type=Path,
        default=PUBLISHED,
        metavar="FILE",
        help="CSV files of published measurements (default: those of validation/data)",
    )
    parser.add_argument("--family", required=True, metavar="NAME", help="whose constants")
    parser.add_argument(
        "--row_ids", nargs="+", metavar="ID", help="which rows (default: its calibration rows)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
