"""The files that many commands name, and the machine's, which all find by the same rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

HERE = (Path(),)

Params = Annotated[
    Path, Argument(help="YAML file with model, optimizer, data and loop", metavar="PARAMS")
]
Cluster = Annotated[
    Path | None, Option(help="YAML file of the machine (default: cluster.yaml in this folder)")
]


def cluster_file(typed: Path | str | None, folders: Sequence[Path] = HERE) -> Path | None:
    """Return the named file, else the first cluster.yaml in ``folders``."""
    if typed is not None:
        return Path(typed)
    candidates = (folder / "cluster.yaml" for folder in folders)
    return next((path for path in candidates if path.is_file()), None)
