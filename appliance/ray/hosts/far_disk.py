"""The disk of another host: its files are read and written there, by tasks of Ray.

Weight servers that run elsewhere need no shared file system, and a path that happens to exist on
their own host, too, means nothing to them. As a task may take a second, one carries many tensors.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError

from appliance.ray.hosts.places import task_options
from waferstream.core.units import MIB
from waferstream.host.disk import LOCAL_DISK, OpenFile, write_at

_CHUNK_BYTES = 16 * MIB  # read or written at a time
_MOST_IN_FLIGHT = 4  # writes on their way to the host

_Piece = tuple[bytes, int]  # and its offset in the file


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
            copy = folder / path.name
            read = ray.remote(**self._options)(_read)
            with copy.open("wb") as file:
                while len(content := _result(read.remote(path, file.tell()))) == _CHUNK_BYTES:
                    file.write(content)
                file.write(content)
            yield copy
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _FarFile:
    """A file of another host; a few writes are on their way at a time."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self._path = path
        self._write = ray.remote(**options)(_write)
        self._pieces: list[_Piece] = []
        self._num_bytes = 0  # of the pieces
        self._pending: deque[Any] = deque()

    def write(self, content: np.ndarray, offset: int) -> None:
        self._pieces.append((content.tobytes(), offset))
        self._num_bytes += content.nbytes
        if self._num_bytes >= _CHUNK_BYTES:
            self._send(is_last=False)

    def flush(self) -> None:
        """Wait until all is on the disk."""
        while self._pending:
            _result(self._pending.popleft())
        self._send(is_last=True)
        _result(self._pending.popleft())

    def _send(self, is_last: bool) -> None:
        if len(self._pending) == _MOST_IN_FLIGHT:
            _result(self._pending.popleft())
        self._pending.append(self._write.remote(self._path, self._pieces, is_last))
        self._pieces, self._num_bytes = [], 0


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


def _write(path: Path, pieces: Sequence[_Piece], is_last: bool) -> None:
    """Write pieces, and with the last ones flush the file."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        for content, offset in pieces:
            write_at(descriptor, np.frombuffer(content, np.uint8), offset)
        if is_last:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(_CHUNK_BYTES)


def _replace_text(path: Path, text: str) -> None:
    LOCAL_DISK.replace_text(path, text)
