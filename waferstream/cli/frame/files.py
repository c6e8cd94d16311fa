"""The file of the machine, which every command finds by the same rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

HERE = (Path(),)


def cluster_file(typed: Path | str | None, folders: Sequence[Path] = HERE) -> Path | None:
    """Return the named file, else the first cluster.yaml in ``folders``."""
    if typed is not None:
        return Path(typed)
    candidates = (folder / "cluster.yaml" for folder in folders)
    return next((path for path in candidates if path.is_file()), None)
