"""The files of a dataset: named one by one, by folder, or by glob."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from wsc.core.errors import DataError


def find_files(pattern: str, suffixes: Iterable[str]) -> list[Path]:
    """The files that ``pattern`` names, sorted, so that every host sees the same order.

    A file is itself, a folder is all files below it with one of ``suffixes``, anything else is a
    glob. Raises DataError if there is none.
    """
    path = Path(pattern).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        rule = f"a folder holds files that end in {' or '.join(suffixes)}"
        found = {file for suffix in suffixes for file in path.rglob(f"*{suffix}")}
    else:
        rule = "the path of a file, a folder, or a glob that matches a file"
        found = {Path(name) for name in glob.glob(str(path), recursive=True)}
    if files := sorted(file for file in found if file.is_file()):
        return files
    raise DataError(
        "no data file found",
        where=pattern,
        rule=rule,
        remedy="correct the path, or prepare the dataset first",
    )
