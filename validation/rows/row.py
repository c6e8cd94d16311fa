"""Reference rows: one published measurement each, read from CSV and checked."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

from validation.rows.columns import COLUMNS, RESULTS, Kind
from validation.rows.units import PER, canonical, unknown_word
from wsc.core.errors import ConfigError, did_you_mean, nearest

Use = Literal["calibration", "validation", "context"]
Evidence = Literal["silicon", "simulator", "compiler-estimate"]

_DATA = Path(__file__).parents[1] / "data"
PUBLISHED = tuple(_DATA / f"{name}.csv" for name in ("wse_kernels", "wse_training", "gpu_training"))
"""The committed files of published measurements."""

_NUMBERS_IN_BRACKETS = re.compile(r"\s*\([\d.,\s\u2013-]+\)")


@dataclass(frozen=True)
class Row:
    """One line of a reference file."""

    kind: Kind
    file: str
    line: int
    row_id: str
    use: Use
    value: float | str
    """A number; text when the source gives a formula or a range."""
    unit: str
    """As ``units.canonical`` has it: without the remark in brackets that some rows add."""
    evidence: Evidence
    fields: Mapping[str, str]
    """All columns of the kind as they stand."""

    @property
    def place(self) -> str:
        """File, line and row for an error."""
        return f"{self.file}, line {self.line}, row {self.row_id}"

    def text(self, column: str) -> str:
        """The cell of a column, "" when empty; KeyError if this kind has no such column."""
        return self.fields[column].strip()

    def number(self, column: str) -> float | None:
        """The cell as a number, None when empty; ConfigError when it is something else."""
        text = self.text(column)
        if not text:
            return None
        number = _finite(text)
        if number is None:
            raise _wrong_cell(self, column, "a finite number or nothing")
        return number

    def integer(self, column: str) -> int | None:
        """The cell as a count, None when empty; ConfigError if it is not whole or below one."""
        number = self.number(column)
        if number is None:
            return None
        if not number.is_integer() or number < 1:
            raise _wrong_cell(self, column, "a whole number from 1, or nothing")
        return int(number)

    def described(self) -> Row:
        """The row as a replay may see it: what was run, and nothing of what came out."""
        fields = {column: "" if column in RESULTS else text for column, text in self.fields.items()}
        fields["unit"] = self.unit
        fields["workload"] = _NUMBERS_IN_BRACKETS.sub("", self.fields["workload"])
        return replace(self, value="", fields=fields)


def read_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a file, its kind recognised by its columns; columns of no kind are left out.

    Raises ConfigError, which names file, row, field and rule, if the file cannot be read, lacks a
    column, or holds a row that is incomplete or has an unknown unit, use or evidence.
    """
    header, lines = _read_lines(path)
    kind = _kind(path, header)
    rows = tuple(_row(kind, path, number, header, cells) for number, cells in lines)
    if not rows:
        raise ConfigError("the file holds no rows", where=str(path), rule="a header and rows")
    check_unique(rows)
    return rows


def check_unique(rows: Sequence[Row]) -> None:
    """ConfigError if two rows have the same ``row_id``."""
    first: dict[str, Row] = {}
    for row in rows:
        if (other := first.setdefault(row.row_id, row)) is not row:
            raise ConfigError(
                "a row id stands twice",
                where=f"{row.place}, field row_id; first at {other.file}, line {other.line}",
                value=row.row_id,
                rule="row ids are unique",
            )


def _read_lines(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [column.strip() for column in next(reader, [])]
            lines, before = [], reader.line_num
            for cells in reader:
                if cells:
                    lines.append((before + 1, cells))
                before = reader.line_num  # a quoted cell may hold line breaks
            return header, lines
    except OSError as error:
        raise ConfigError(
            "the file cannot be read", where=str(path), value=error.strerror
        ) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError("the file is not CSV text", where=str(path), value=error) from error


def _kind(path: Path, header: Sequence[str]) -> Kind:
    kind = max(COLUMNS, key=lambda kind: len(set(COLUMNS[kind]) & set(header)))
    missing = [column for column in COLUMNS[kind] if column not in header]
    if missing:
        extra = [column for column in header if column not in COLUMNS[kind]]
        raise ConfigError(
            f"column {missing[0]!r} is missing",
            where=f"{path}, header, field {missing[0]}",
            value=", ".join(header) or "empty",
            rule=f"a file of {kind} rows has the columns {', '.join(COLUMNS[kind])}",
            remedy=_remedy(missing[0], extra),
        )
    if twice := [column for column in COLUMNS[kind] if header.count(column) > 1]:
        raise ConfigError(
            "a column stands twice",
            where=f"{path}, header, field {twice[0]}",
            rule="column names are unique",
        )
    return kind


def _remedy(missing: str, others: Sequence[str]) -> str | None:
    """What may be wrong with a header: a column's name, or what stands between the columns."""
    if near := nearest(missing, others):
        return f"is {near!r} meant to be it?"
    one_cell = len(others) == 1 and missing in others[0]
    return "separate the cells by commas" if one_cell else None


def _row(kind: Kind, path: Path, line: int, header: Sequence[str], cells: Sequence[str]) -> Row:
    by_name = dict(zip(header, cells, strict=False))
    where = f"{path}, line {line}, row {by_name.get('row_id', 'without id')}"
    if len(cells) != len(header):
        raise ConfigError(
            "the row is not as wide as the header",
            where=where,
            value=f"{len(cells)} cells, {len(header)} columns",
            rule="one cell for each column; a cell with a comma stands in quotes",
        )
    fields = {column: by_name[column] for column in COLUMNS[kind]}
    for column in ("row_id", "workload", "value", "unit"):
        if not fields[column].strip():
            raise ConfigError(
                f"{column!r} is empty", where=f"{where}, field {column}", rule="never empty"
            )
    value = fields["value"].strip()
    number = _finite(value)
    return Row(
        kind=kind,
        file=str(path),
        line=line,
        row_id=fields["row_id"].strip(),
        use=cast(Use, _choice(where, "use", fields["use"], get_args(Use))),
        value=value if number is None else number,
        unit=_unit(where, fields["unit"]),
        evidence=cast(
            Evidence,
            _choice(where, "evidence", fields.get("evidence", "silicon"), get_args(Evidence)),
        ),
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
        where=where,
        value=repr(value),
        rule=rule,
        remedy=did_you_mean(word, known),
    )


def _wrong_cell(row: Row, column: str, rule: str) -> ConfigError:
    return ConfigError(
        f"value of {column!r} is not allowed",
        where=f"{row.place}, field {column}",
        value=repr(row.fields[column]),
        rule=rule,
    )


def _finite(text: str) -> float | None:
    """The number that a cell holds, or None; "nan" and "inf" are no numbers here."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
