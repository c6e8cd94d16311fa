"""The disk that holds the user's files, for a role that may run on another host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from waferstream.host.files import replacing


class OpenFile(Protocol):
    """A file that is written at given places, by several roles at a time."""

    def write(self, content: np.ndarray, offset: int) -> None:
        """Write bytes at an offset; OSError if the disk is full."""


class Disk(Protocol):
    """A disk; every method raises the OSError of the disk, wherever that is."""

    def writing(self, path: Path) -> AbstractContextManager[OpenFile]:
        """Open a file that exists; what was written is flushed when the block ends well."""

    def replace_text(self, path: Path, text: str) -> None:
        """Write a small file at once."""

    def local(self, path: Path) -> AbstractContextManager[Path]:
        """Yield where a file can be read on this host."""


class LocalDisk:
    """The disk of this host."""

    @contextmanager
    def writing(self, path: Path) -> Iterator[OpenFile]:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            yield _LocalFile(descriptor)
            os.fsync(descriptor)  # other hosts' writes are not flushed by whoever renames the file
        finally:
            os.close(descriptor)

    def replace_text(self, path: Path, text: str) -> None:
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")

    @contextmanager
    def local(self, path: Path) -> Iterator[Path]:
        yield path


class _LocalFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, content: np.ndarray, offset: int) -> None:
        write_at(self._descriptor, content, offset)


def write_at(descriptor: int, content: np.ndarray, offset: int) -> None:
    """Write all bytes at an offset of an open file."""
    view = content.data
    while view:
        done = os.pwrite(descriptor, view, offset)
        view, offset = view[done:], offset + done


LOCAL_DISK = LocalDisk()
