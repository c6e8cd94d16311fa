"""Readers, writers and deleters of checkpoint files, by the kind of their place.

The kinds are files in HDF5, which exist, and object stores, whose paths are recognised and refused.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import ClassVar

from waferstream.checkpoint.reader import Reader
from waferstream.core.errors import CheckpointError

VERSION_KEY = "__cstorch_version__"
"""The vendor's name for the version of the writer."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class _Place:
    """The place of a checkpoint: a local file, or a URL of an object store."""

    is_remote: ClassVar[bool] = False

    def __init__(self, path: Path | str) -> None:
        self.path = os.fspath(path)

    @classmethod
    def is_valid_path(cls, path: Path | str) -> bool:
        """Return whether a path is of this kind."""
        return bool(_URL.match(os.fspath(path))) == cls.is_remote

    @classmethod
    def path_exists(cls, path: Path | str) -> bool:
        """Return whether there is a checkpoint; CheckpointError for a URL."""
        return Path(local_path(path)).exists()

    @classmethod
    def get(cls, path: Path | str) -> _Place:
        """Return the object for a path; CheckpointError for a URL."""
        return cls(local_path(path))


class StorageReader(_Place):
    """Access to checkpoints that exist."""

    @property
    def stats(self) -> os.stat_result:
        """Size and times of the file."""
        return Path(self.path).stat()

    @property
    def fstat(self) -> os.stat_result:
        """Size and times of the file."""
        return self.stats

    @property
    def global_metadata(self) -> dict[str, str]:
        """The version that has written the file; CheckpointError if it is damaged."""
        return {VERSION_KEY: Reader(Path(self.path)).writer_version}

    @classmethod
    def get_type(cls, path: Path | str) -> type[StorageReader]:
        """Return the class that reads a path."""
        return S3Reader if S3Reader.is_valid_path(path) else H5Reader


class StorageWriter(_Place):
    """Access to checkpoints that are to be written."""


class StorageDeleter(_Place):
    """Deletion of checkpoints."""

    def delete(self) -> None:
        """Delete the file, if it exists."""
        Path(self.path).unlink(missing_ok=True)


class H5Reader(StorageReader):
    """Access to files in HDF5."""


class H5Writer(StorageWriter):
    """Access to files in HDF5."""


class S3Reader(StorageReader):
    """Recognises URLs of object stores, which are not supported."""

    is_remote = True


class S3Writer(StorageWriter):
    """Recognises URLs of object stores, which are not supported."""

    is_remote = True


class S3Deleter(StorageDeleter):
    """Recognises URLs of object stores, which are not supported."""

    is_remote = True


def local_path(path: Path | str) -> str:
    """Return the path of a local file; CheckpointError for a URL."""
    scheme = _URL.match(os.fspath(path))
    if scheme:
        raise CheckpointError(
            "a checkpoint must be a local file",
            code="checkpoint-not-local",
            where=str(path),
            value=f"{scheme[0]}/",
            rule="object stores are not supported",
            remedy="use a path of a mounted file system, and copy the file afterwards",
        )
    return os.fspath(path)
