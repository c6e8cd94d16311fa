"""Columns of a folder that ``save_to_disk`` of Hugging Face's datasets wrote.

``state.json`` lists files of Arrow streams (datasets 5.2); a folder of several splits has a folder
for each of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from waferstream.core.errors import DataError
from waferstream.core.extras import extra_package

_STATE, _SPLITS = "state.json", "dataset_dict.json"


def read_column(folder: Path, split: str | None, name: str) -> Any:
    """Read a column, whose bytes stay on the disk until they are used.

    Returns:
        A chunked array of pyarrow.

    Raises:
        DataError: The folder is none of datasets, is damaged, or has no such split or column.
        ConfigError: The package pyarrow is not installed.
    """
    arrow, streams = extra_package("pyarrow", "data"), extra_package("pyarrow.ipc", "data")
    place = _folder_of(folder, split)
    try:
        listed = json.loads((place / _STATE).read_text(encoding="utf-8"))["_data_files"]
        files = [place / Path(each["filename"]).name for each in listed]
        tables = [streams.open_stream(arrow.memory_map(str(file))).read_all() for file in files]
        table = arrow.concat_tables(tables)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(
            "the dataset cannot be read",
            code="dataset-damaged",
            where=str(place),
            value=error,
            rule="a folder that save_to_disk of Hugging Face's datasets wrote",
        ) from error
    if name not in table.column_names:
        raise DataError(
            "the dataset must have the column",
            code="dataset-column-missing",
            where=str(place),
            value=name,
            rule=f"one of {', '.join(table.column_names)}",
        )
    return table.column(name)


def _folder_of(folder: Path, split: str | None) -> Path:
    """Return the folder of a split, or of a dataset without splits."""
    try:
        splits = json.loads((folder / _SPLITS).read_text(encoding="utf-8"))["splits"]
    except OSError:
        splits = None  # of one split, which the state says
    except (ValueError, LookupError, TypeError):
        splits = []
    if (split is None) if splits is None else split in splits:
        return folder / (split or "")
    raise DataError(
        "split must be one of the dataset",
        code="dataset-split-missing",
        where=str(folder),
        value=split,
        rule=f"one of {', '.join(map(str, splits))}"
        if splits
        else "null: the dataset has no splits",
    )
