"""Copies of data folders on the disk of an input worker's host."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

from cstorch import distributed
from waferstream.core.errors import DataError
from waferstream.host.locks import locked
from waferstream.host.user_state import make_private

_LONGEST_COPY_S = 3600.0  # which another input worker of the host makes


def cached(pattern: str) -> str:
    """Return the copy of a folder, made or renewed if need be; files and globs stay as they are.

    A copy is renewed if names, sizes or times of the files differ.

    Raises:
        DataError: The disk has no room for the copy.
    """
    folder = Path(pattern).expanduser().resolve()
    if not folder.is_dir():
        return pattern
    root = Path(distributed.WORKER_CACHE_ROOT)
    make_private(root)  # another user could give a copy other data
    copy = root / f"{folder.name}-{sha256(str(folder).encode()).hexdigest()[:16]}"
    with locked(copy.with_name(f"{copy.name}.lock"), _LONGEST_COPY_S):  # one copy for all workers
        if _content(copy) != _content(folder):
            _renew(folder, copy)
    return str(copy)


def _content(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return size and time of every file below a folder."""
    found = {path.relative_to(folder): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def _renew(folder: Path, copy: Path) -> None:
    """Copy a folder, so that a reader sees the whole copy or none; DataError if it does not fit."""
    is_full, needed, left = distributed.hit_worker_cache_limit(str(folder), str(copy))
    if is_full:
        raise DataError(
            "the worker cache must have room for the data",
            code="worker-cache-full",
            where=str(folder),
            value=f"{needed} bytes, {left} left",
            remedy=f"delete {distributed.WORKER_CACHE_ROOT}, or set use_worker_cache to false",
        )
    partial = copy.with_name(f"{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    shutil.copytree(folder, partial)
    shutil.rmtree(copy, ignore_errors=True)
    partial.rename(copy)
