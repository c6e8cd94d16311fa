"""Files that a command is asked to write, checked before anything is computed."""

from __future__ import annotations

import shlex
from pathlib import Path

from waferstream.core.errors import ConfigError


def check_folder(path: Path, where: str) -> Path:
    """Return the path of a file to write; ConfigError, naming ``where``, if its folder is none."""
    if path.parent.is_dir() and not path.is_dir():
        return path
    raise ConfigError(
        "a file to write must lie in a folder that exists",
        code="folder-missing",
        where=where,
        value=path,
        rule="a name of a file, in an existing folder",
        remedy=f"mkdir -p {shlex.quote(str(path.parent))}",
    )
