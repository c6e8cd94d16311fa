"""The disk of another host: its files are read and written there, by tasks of Ray.

Weight servers that run elsewhere need no shared file system, and a path that happens to exist on
their own host, too, means nothing to them.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError

from appliance.ray.hosts.places import task_options
from wsc.core.units import MIB
from wsc.host.disk import LOCAL_DISK, OpenFile, write_at

_CHUNK_BYTES = 4 * MIB  # read at a time
_MOST_IN_FLIGHT = 4  # writes on their way to the host


class FarDisk:
    """The disk of one other host, by Ray's id."""

    def __init__(self, host: str) -> None:
        self._options = task_options(host)

    @contextmanager
    def writing(self, path: Path) -> Iterator[OpenFile]:
        file = _FarFile(path, self._options)
        yield file
        file.flush()

    def replace_text(self, path: Path, text: str) -> None:
        _result(ray.remote(**self._options)(_replace_text).remote(path, text))

    @contextmanager
    def local(self, path: Path) -> Iterator[Path]:
        """Yield a copy, which is removed when the block ends."""
        folder = Path(mkdtemp(prefix="waferstream-"))
        try:
            copy, offset = folder / path.name, 0
            read = ray.remote(**self._options)(_read)
            with copy.open("wb") as file:
                while content := _result(read.remote(path, offset)):
                    file.write(content)
                    offset += len(content)
            yield copy
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _FarFile:
    """A file of another host; a few writes are on their way at a time."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self._path = path
        self._write = ray.remote(**options)(_write)
        self._sync = ray.remote(**options)(_sync)
        self._pending: deque[Any] = deque()

    def write(self, content: np.ndarray, offset: int) -> None:
        if len(self._pending) == _MOST_IN_FLIGHT:
            _result(self._pending.popleft())
        self._pending.append(self._write.remote(self._path, content.tobytes(), offset))

    def flush(self) -> None:
        """Wait until all is on the disk."""
        while self._pending:
            _result(self._pending.popleft())
        _result(self._sync.remote(self._path))


def _result(future: Any) -> Any:
    """Return the result of a task, or raise the OSError that it has raised.

    Raises:
        OSError: The disk refuses, or the host is gone.
    """
    try:
        return ray.get(future)
    except RayTaskError as error:
        if isinstance(error.cause, OSError):
            raise error.cause from error
        raise
    except RayError as error:
        raise OSError(f"the host of the program does not answer: {error}") from error


def _write(path: Path, content: bytes, offset: int) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        write_at(descriptor, np.frombuffer(content, np.uint8), offset)
    finally:
        os.close(descriptor)


def _read(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(_CHUNK_BYTES)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace_text(path: Path, text: str) -> None:
    LOCAL_DISK.replace_text(path, text)
