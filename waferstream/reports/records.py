"""Records, one for each row of a result, as files and tables that other programs read."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from waferstream.core.errors import ConfigError
from waferstream.host.files import json_text, replacing

if TYPE_CHECKING:
    import pandas as pd

Value = str | int | float | bool | None
Record = Mapping[str, Value]
"""The values of a row by the name of their column; units are part of the names."""

SUFFIXES = (".csv", ".parquet", ".json")
"""Files of records; the suffix says which."""


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Write records in the format of the suffix; a value that is missing is an empty cell, or null.

    Raises:
        ConfigError: The format needs a package that is not installed.
    """
    with replacing(path) as partial:
        match path.suffix:
            case ".csv":
                _write_csv(partial, records)
            case ".parquet":
                _write_parquet(partial, records)
            case _:
                partial.write_text(f"{json_text(list(records))}\n", encoding="utf-8")


def to_dataframe(records: Sequence[Record]) -> pd.DataFrame:
    """Return records as a table of pandas.

    Raises:
        ConfigError: pandas is not installed.
    """
    try:
        import pandas as pd  # noqa: PLC0415  (optional, and slow to import)
    except ImportError as error:
        raise _not_installed("a data frame", error) from error
    return pd.DataFrame(list(records), columns=columns_of(records))


def columns_of(records: Sequence[Record]) -> list[str]:
    """Return the names of all columns, in the order in which records name them."""
    return list(dict.fromkeys(name for record in records for name in record))


def _write_csv(path: Path, records: Sequence[Record]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns_of(records), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def _write_parquet(path: Path, records: Sequence[Record]) -> None:
    try:
        import pyarrow as pa  # noqa: PLC0415  (optional, and slow to import)
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise _not_installed("a parquet file", error) from error
    columns = {name: [each.get(name) for each in records] for name in columns_of(records)}
    parquet.write_table(pa.table({name: _alike(cells) for name, cells in columns.items()}), path)


def _alike(cells: Sequence[Value]) -> Sequence[Value]:
    """Return the cells of a column as text where they are of several types, as in auto,8,16."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if len(kinds) < 2 or kinds == {int, float}:
        return cells
    return [None if cell is None else str(cell) for cell in cells]


def _not_installed(what: str, error: ImportError) -> ConfigError:
    return ConfigError(
        f"{what} needs a package that is not installed",
        code="package-missing",
        where=error.name,
        value=error,
        remedy="pip install 'waferstream[frames]', or write .csv or .json",
    )
