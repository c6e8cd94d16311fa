"""Rows of CSV files, and of tables with tabs, read on demand.

A folder has a file ``meta.dat`` with a line ``NAME ROWS`` for each of its files, as the vendor's
preparation of BERT data writes it. A file starts with a line of column names.
"""

from __future__ import annotations

import ast
import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO

import numpy as np

from modelzoo.data.source import located, starts_of_parts
from waferstream.core.errors import DataError
from waferstream.core.units import MIB

META = "meta.dat"
_BLOCK = 16 * MIB
_QUOTE, _NEWLINE = b'"\n'
_DAMAGE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError)
"""What reading a list from text that is none raises."""


@dataclass(frozen=True)
class Dialect:
    """How rows are written."""

    delimiter: str = ","
    has_quotes: bool = True
    """Whether quotes may stand around a value, which may then hold ends of lines."""


CSV = Dialect()
TSV = Dialect("\t", has_quotes=False)


@dataclass(frozen=True)
class CsvFile:
    """A file with the places of its rows; it is open only during a read."""

    path: Path
    columns: tuple[str, ...]
    ends: np.ndarray
    """Byte after each row, the line of column names included."""
    dialect: Dialect = CSV

    def __len__(self) -> int:
        return len(self.ends) - 1

    def read(self, rows: np.ndarray) -> list[dict[str, str]]:
        """Return the values of rows by column.

        Raises:
            DataError: The file cannot be read, or a row has another number of values.
        """
        try:
            with self.path.open("rb") as file:
                return [self._read_one(file, int(row)) for row in rows]
        except OSError as error:
            raise _damaged(self.path, error.strerror or str(error)) from error

    def _read_one(self, file: BinaryIO, row: int) -> dict[str, str]:
        """Return the values of one row by column."""
        start = int(self.ends[row])
        file.seek(start)
        values = _fields(file.read(int(self.ends[row + 1]) - start), self.path, self.dialect)
        if len(values) != len(self.columns):
            raise _damaged(self.path, f"row {row + 1} has {len(values)} values")
        return dict(zip(self.columns, values, strict=True))


class CsvRows:
    """Rows of several files, one file after the other."""

    def __init__(self, files: Sequence[CsvFile], name: str) -> None:
        self.name = name
        self._files = files
        self._starts = starts_of_parts([len(file) for file in files])

    @property
    def columns(self) -> frozenset[str]:
        """Columns that every file has."""
        return frozenset.intersection(*(frozenset(file.columns) for file in self._files))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, indices: np.ndarray) -> list[dict[str, str]]:
        """Return the rows at int64 ``indices``, in that order."""
        parts, inside = located(self._starts, indices)
        rows: list[dict[str, str]] = [{}] * len(indices)
        for part in np.unique(parts):
            (places,) = np.nonzero(parts == part)
            for place, row in zip(places, self._files[part].read(inside[places]), strict=True):
                rows[place] = row
        return rows


def open_folders(folders: Sequence[str]) -> CsvRows:
    """Return the rows of all files that the folders' ``meta.dat`` list.

    Raises:
        DataError: A file is missing, or has another number of rows than stated.
    """
    listed = [pair for folder in folders for pair in listed_files(Path(folder).expanduser())]
    files = []
    for path, num_rows in listed:
        file = inspect_csv(path)
        if len(file) != num_rows:
            raise DataError(
                f"{META} must state the number of rows of its files",
                code="csv-row-count-mismatch",
                where=str(path),
                value=f"{len(file)} rows, {num_rows} stated",
                remedy="write the file again; it may be a partial copy",
            )
        files.append(file)
    return CsvRows(files, ", ".join(folders))


def listed_files(folder: Path) -> list[tuple[Path, int]]:
    """Return the files that the ``meta.dat`` of a folder lists, with their numbers of rows."""
    return [(path, rows) for (path,), rows in listed_groups(folder, size=1)]


def listed_groups(folder: Path, size: int) -> list[tuple[tuple[Path, ...], int]]:
    """Return groups of ``size`` files in each line of ``meta.dat``, with their numbers of rows."""
    meta = folder / META
    try:
        lines = [line.split() for line in meta.read_text(encoding="utf-8").splitlines() if line]
        listed = [(tuple(folder / name for name in names), int(rows)) for *names, rows in lines]
    except FileNotFoundError as error:
        raise DataError(
            f"the folder must have a file {META}",
            code="csv-meta-missing",
            where=str(folder),
            rule=f"{META} has a line '{'NAME ' * size}ROWS' for each file or pair",
            remedy="correct the path, or prepare the dataset first",
        ) from error
    except (OSError, ValueError) as error:
        raise _damaged(meta, str(error)) from error
    for paths, _ in listed:
        if len(paths) != size:
            raise _damaged(meta, f"a line has {len(paths)} names instead of {size}")
        for path in paths:
            if not path.resolve().is_relative_to(folder.resolve()):
                raise _damaged(meta, f"{path} is outside of the folder")
    if not listed:
        raise _damaged(meta, "no file is listed")
    return listed


def words(text: str, where: str) -> list[str]:
    """Return the words that a value of a row lists; DataError if it is no such list."""
    return [each for each in _listed(text, where, str) if isinstance(each, str)]


def numbers(text: str, where: str, most: int | None = None) -> list[int]:
    """Return the whole numbers that a value of a row lists, or the one that it is.

    Raises:
        DataError: It is no such list, a number is not whole or does not fit int64, or there are
            more than ``most`` numbers.
    """
    found = _listed(text, where, int | float)
    if most is not None and len(found) > most:
        raise _damaged(Path(where), f"{len(found)} numbers, {most} at most")
    if wrong := [each for each in found if not _is_int64(each)]:
        raise _damaged(Path(where), f"{wrong[0]} is not a whole number of 64 bits")
    return [int(each) for each in found]


def number(text: str, where: str) -> int:
    """Return the whole number that a value of a row is; DataError if it is none."""
    found = numbers(text, where, most=1)
    if not found:
        raise _damaged(Path(where), f"{text[:40]!r} is not a number")
    return found[0]


def _is_int64(value: float) -> bool:
    is_whole = isinstance(value, int) or value.is_integer()
    return is_whole and -(2**63) <= value < 2**63


def _listed(text: str, where: str, kind: type | UnionType) -> list[Any]:
    """Return the list that a value of a row is, with members of one kind."""
    try:
        found = json.loads(text) if "'" not in text else ast.literal_eval(text.strip())
    except _DAMAGE as error:
        raise _damaged(Path(where), f"{text[:40]!r} is not a list") from error
    listed = found if isinstance(found, list) else [found]
    if not all(isinstance(each, kind) for each in listed):
        raise _damaged(Path(where), f"{text[:40]!r} is not a list of {kind}")
    return listed


def inspect_csv(path: Path, dialect: Dialect = CSV) -> CsvFile:
    """Find the rows of a file, lines that end outside of quotes; DataError if it is damaged."""
    ends: list[np.ndarray] = []
    size = open_quotes = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                characters = np.frombuffer(block, dtype=np.uint8)
                quotes = np.cumsum((characters == _QUOTE) & dialect.has_quotes) + open_quotes
                (lines,) = np.nonzero((characters == _NEWLINE) & (quotes % 2 == 0))
                ends.append(lines + size + 1)
                size, open_quotes = size + len(block), int(quotes[-1]) % 2
            file.seek(0)
            places = np.concatenate([*ends, [size]] if ends else [[0]]).astype(np.int64)
            header = _fields(file.read(int(places[0])), path, dialect)
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error
    if len(places) > 1 and places[-2] == size:
        places = places[:-1]
    return CsvFile(path, tuple(header), places, dialect)


def _fields(line: bytes, path: Path, dialect: Dialect) -> list[str]:
    """Return the values of one row."""
    try:
        text = io.StringIO(line.decode("utf-8"), newline="")
        if dialect.has_quotes:
            rows = list(csv.reader(text, delimiter=dialect.delimiter))
        else:
            rows = list(csv.reader(text, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE))
    except (csv.Error, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from error
    return rows[0] if rows else []


def check_columns(rows: CsvRows, needed: Sequence[str]) -> None:
    """Refuse files without a column."""
    if missing := [name for name in needed if name not in rows.columns]:
        raise DataError(
            "the CSV files must have the columns of their features",
            code="csv-column-missing",
            where=rows.name,
            value=f"{', '.join(sorted(rows.columns))}; no {', '.join(missing)}",
        )


def _damaged(path: Path, value: str) -> DataError:
    return DataError(
        "the CSV file cannot be read",
        code="csv-damaged",
        where=str(path),
        value=value,
        rule="a line of column names, then one row with a value for each of them",
        remedy="write or copy the file again",
    )
