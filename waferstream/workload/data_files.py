"""Files of a dataset, in an order that every host has."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from waferstream.core.errors import DataError


def text_empty(where: str, value: object = None) -> DataError:
    """Return the error for text of no byte."""
    return DataError(
        "the text must not be empty",
        code="text-empty",
        where=where,
        value=value,
        rule="files with at least one byte",
        remedy="name files with text",
    )


def out_of_vocabulary(where: str, value: str, rule: str, remedy: str) -> DataError:
    """Return the error for tokens that a model does not know."""
    return DataError(
        "token ids must be below the size of the model's vocabulary",
        code="token-out-of-vocabulary",
        where=where,
        value=value,
        rule=rule,
        remedy=remedy,
    )


def find_files(pattern: str, suffixes: Iterable[str]) -> list[Path]:
    """Return the files of a dataset, sorted, so that every host has the same order.

    Args:
        pattern: A file; a folder, which means all files below it with one of ``suffixes``; or a
            glob.
        suffixes: Suffixes of the files of a folder, with their dot.

    Raises:
        DataError: There is no such file.
    """
    path = Path(pattern).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        rule = f"a folder with files that end in {' or '.join(suffixes)}"
        found = {file for suffix in suffixes for file in path.rglob(f"*{suffix}")}
    else:
        rule = "a file, a folder, or a glob that matches a file"
        found = {Path(name) for name in glob.glob(str(path), recursive=True)}
    if files := sorted(file for file in found if file.is_file()):
        return files
    raise DataError(
        "the pattern must match a data file",
        code="data-file-not-found",
        where=pattern,
        rule=rule,
        remedy="correct the path, or prepare the dataset first",
    )
