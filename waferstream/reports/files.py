"""Files that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_core import to_json


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to.

    The new file takes the place of ``path`` when the block ends well, and vanishes when it does
    not: a reader sees the old file or the new one, never a part.
    """
    partial = path.with_name(f".partial-{path.name}")
    try:
        with naming(path):
            yield partial
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an OSError that names no file, as that of a full disk, name ``path``."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def write_json(path: Path, data: Any) -> None:
    """Write plain data or dataclasses as indented JSON.

    JSON knows no NaN; a value that is not finite becomes the string "NaN" or "Infinity".
    """
    with replacing(path) as partial:
        partial.write_bytes(to_json(data, indent=2, inf_nan_mode="strings") + b"\n")
