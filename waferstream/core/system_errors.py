"""Errors of the operating system about files, with the remedy that a user needs."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from waferstream.core.errors import WaferStreamError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.ESTALE}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


def file_error(error: OSError) -> WaferStreamError:
    """Return the error of this program for one of the operating system."""
    code, remedy = _kind_of(error)
    place, reason = _place_of(error), error.strerror or str(error)
    return WaferStreamError(
        f"{place}: {reason}" if place else reason, code=code, where=place, remedy=remedy
    )


def remedy_of(error: OSError) -> str | None:
    """Return the remedy of an error about a file."""
    return _kind_of(error)[1]


def _kind_of(error: OSError) -> tuple[str, str | None]:
    """Return code and remedy."""
    if error.errno in _FULL:
        if _lacks_inodes(_place_of(error)):
            return (
                "disk-without-inodes",
                "remove files, however small, or write elsewhere (model_dir)",
            )
        return "disk-full", "free space, write elsewhere (model_dir), or keep fewer checkpoints"
    if error.errno in _GONE:
        remedy = "leave the folders of a run where they are; the same command makes new ones"
        return "file-gone", remedy
    if error.errno in _FORBIDDEN:
        return "file-forbidden", "name a place that you may write to (model_dir)"
    return "file-error", None


def _place_of(error: OSError) -> str | None:
    """Return the file of an error; of a link or a new name that one, not what it leads to."""
    name = error.filename2 or error.filename
    return os.fsdecode(name) if isinstance(name, str | bytes | Path) else None


def _lacks_inodes(place: str | None) -> bool:
    """Return whether the file system of a file has space, but no place for another name."""
    path = Path(place or "")
    while not path.exists() and path != path.parent:
        path = path.parent
    found = os.statvfs(path)
    return found.f_files > 0 and found.f_ffree == 0 and found.f_bfree > 0
