"""Read and check files of published measurements."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

from validation.rows.row import COLUMNS, Evidence, Kind, Row, Use, finite
from validation.rows.units import PER, canonical, unknown_word
from waferstream.core.config_errors import unreadable
from waferstream.core.errors import ConfigError, did_you_mean, nearest

_DATA = Path(__file__).parents[1] / "data"
PUBLISHED = tuple(
    _DATA / f"{name}.csv"
    for name in (
        "wse_kernels",
        "wse_training",
        "wse_set_up",
        "wse_service",
        "sparse_training",
        "gpu_training",
    )
)
"""The committed files of published measurements."""

_OTHER_NAMES = {"model": "workload"}
"""Names of columns in files of others."""


def read_rows(path: Path) -> tuple[Row, ...]:
    """Read a file; its kind follows from its columns, and other columns are ignored.

    Raises:
        ConfigError: The file cannot be read or lacks a column, or a row is incomplete or has an
            unknown unit, use or evidence. The error names file, row, field and rule.
    """
    header, lines = _read_lines(path)
    kind = _kind(path, header)
    rows = tuple(_row(kind, path, number, header, values) for number, values in lines)
    if not rows:
        raise ConfigError(
            "the file holds no rows",
            code="file-without-rows",
            where=str(path),
            rule="a header and rows",
        )
    check_unique(rows)
    return rows


def check_unique(rows: Sequence[Row]) -> None:
    """Raise ConfigError if two rows have the same ``row_id``."""
    first: dict[str, Row] = {}
    for row in rows:
        if (other := first.setdefault(row.row_id, row)) is not row:
            raise ConfigError(
                f"row ids must be unique; got {row.row_id} twice",
                code="row-id-not-unique",
                where=f"{row.place}, field row_id; first at {other.file}, line {other.line}",
                value=row.row_id,
                rule="row ids are unique",
            )


def _read_lines(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            names = [column.strip() for column in next(reader, [])]
            header = [_OTHER_NAMES.get(name, name) for name in names]
            lines, before = [], reader.line_num
            for values in reader:
                if values:
                    lines.append((before + 1, values))
                before = reader.line_num  # a quoted column may hold line breaks
            return header, lines
    except OSError as error:
        raise unreadable(path, error) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(
            "the file is not CSV text", code="file-not-csv", where=str(path), value=error
        ) from error


def _kind(path: Path, header: Sequence[str]) -> Kind:
    kind = max(COLUMNS, key=lambda kind: len(set(COLUMNS[kind]) & set(header)))
    missing = [column for column in COLUMNS[kind] if column not in header]
    if missing:
        extra = [column for column in header if column not in COLUMNS[kind]]
        raise ConfigError(
            f"column {missing[0]!r} is missing",
            code="column-missing",
            where=f"{path}, header, field {missing[0]}",
            value=", ".join(header) or "empty",
            rule=f"a file of {kind} rows has the columns {', '.join(COLUMNS[kind])}",
            remedy=_header_remedy(missing[0], extra),
        )
    if twice := [column for column in COLUMNS[kind] if header.count(column) > 1]:
        raise ConfigError(
            f"column names must be unique; got {twice[0]!r} twice",
            code="column-not-unique",
            where=f"{path}, header, field {twice[0]}",
            rule="column names are unique",
        )
    return kind


def _header_remedy(missing: str, others: Sequence[str]) -> str | None:
    """Return a likely cause: a misspelt column, or separators other than commas."""
    if near := nearest(missing, others):
        return f"rename {near!r} if it is meant"
    one_column = len(others) == 1 and missing in others[0]
    return "separate the columns by commas" if one_column else None


def _row(kind: Kind, path: Path, line: int, header: Sequence[str], values: Sequence[str]) -> Row:
    by_name = dict(zip(header, values, strict=False))
    where = f"{path}, line {line}, row {by_name.get('row_id', 'without id')}"
    if len(values) != len(header):
        raise ConfigError(
            "the row must be as wide as the header",
            code="row-width-differs",
            where=where,
            value=f"{len(values)} values, {len(header)} columns",
            rule="one value for each column, in quotes if it contains a comma",
        )
    fields = {column: by_name[column] for column in COLUMNS[kind]}
    for column in ("row_id", "workload", "value", "unit"):
        if not fields[column].strip():
            raise ConfigError(
                f"{column!r} must not be empty",
                code="required-column-empty",
                where=f"{where}, field {column}",
                rule="never empty",
            )
    value = fields["value"].strip()
    number = finite(value)
    evidence = fields.get("evidence", "silicon")
    return Row(
        kind=kind,
        file=str(path),
        line=line,
        row_id=fields["row_id"].strip(),
        use=cast(Use, _choice(where, "use", fields["use"], get_args(Use))),
        value=value if number is None else number,
        unit=_unit(where, fields["unit"]),
        evidence=cast(Evidence, _choice(where, "evidence", evidence, get_args(Evidence))),
        fields=fields,
    )


def _choice(where: str, field: str, text: str, known: Sequence[str]) -> str:
    word = text.strip()
    if word not in known:
        raise _unknown(f"{where}, field {field}", field, word, word, known, ", ".join(known))
    return word


def _unit(where: str, text: str) -> str:
    unit = canonical(text)
    if (word := unknown_word(unit)) is not None:
        rule = "a known quantity such as cycles, s, tokens/s, PFLOP/s, or a ratio: x or %"
        raise _unknown(f"{where}, field unit", "unit", text, word, sorted(PER), rule)
    return unit


def _unknown(
    where: str, noun: str, value: str, word: str, known: Sequence[str], rule: str
) -> ConfigError:
    return ConfigError(
        f"unknown {noun}: {word!r}",
        code=f"unknown-{noun}",
        where=where,
        value=repr(value),
        rule=rule,
        remedy=did_you_mean(word, known),
    )


def add_rows(parser: argparse.ArgumentParser) -> None:
    """Add the files of the rows to a parser."""
    parser.add_argument(
        "--rows",
        nargs="+",
        type=Path,
        default=PUBLISHED,
        metavar="FILE",
        help="CSV files of published measurements (default: those of validation/data)",
    )
