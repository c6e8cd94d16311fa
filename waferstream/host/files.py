"""Write files so that a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any

from pydantic_core import to_json

PARTIAL_NAME = ".{name}.{process}.partial"
"""Name of a file while a process writes it, beside its final name."""

_PARTIAL = re.compile(r"\.(?P<name>.+)\.\d+\.partial(\..*)?")
"""Such a name, also of a file beside it that reports about it."""


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a path to write to; when the block ends well, move that file to ``path``.

    If the block fails nothing is left of the new file. Of several processes that write the same
    file the last one counts. With ``durable`` the file and its name are flushed to the disk first,
    so that they survive a power failure. An OSError that names no file, as that of a full disk, or
    the new one names ``path``.
    """
    partial = path.with_name(PARTIAL_NAME.format(name=path.name, process=os.getpid()))
    try:
        with naming(path, partial):
            _remove_abandoned(path)
            yield partial
            if durable:
                _flush(partial)
            partial.replace(path)
            if durable:
                _flush(path.parent)
    finally:
        with suppress(NotADirectoryError):  # then there is no new file either
            partial.unlink(missing_ok=True)


@contextmanager
def naming(path: Path, partial: Path | None = None) -> Iterator[None]:
    """Set ``path`` as the file name of an OSError that has none, or that of its partial file."""
    try:
        yield
    except OSError as error:
        is_unnamed = error.errno is not None and error.filename is None
        if is_unnamed or (partial is not None and str(error.filename) == str(partial)):
            error.filename = str(path)
        raise


def open_regular(path: str, flags: int) -> int:
    """Open a regular file, as an ``opener``: a pipe that nobody writes to would block for ever.

    A pipe that this process was started with (``/dev/fd/63``) has somebody who writes to it.

    Raises:
        OSError: It is something else.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    if stat.S_ISFIFO(mode) and os.path.realpath(path).startswith("/proc/"):
        os.set_blocking(descriptor, True)
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "neither a file nor a link to one", path)


def final_path(path: Path) -> Path:
    """Return the path that a partial file has in the end; any other path as it is."""
    partial = _PARTIAL.fullmatch(path.name)
    return path if partial is None else path.with_name(partial["name"])


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:
    """Write plain data or dataclasses as indented JSON.

    JSON has no NaN; a value that is not finite becomes the string "NaN" or "Infinity".
    """
    write_text(path, f"{json_text(data)}\n")


def json_text(data: Any) -> str:
    """Return the JSON that ``write_json`` writes."""
    return to_json(data, indent=2, inf_nan_mode="strings").decode()


def remove_oldest(folder: Path, pattern: str, most: int) -> None:
    """Remove the oldest files of a glob beyond ``most``; others may do so at the same time."""
    with suppress(OSError):
        kept = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
        for path in kept[:-most]:
            path.unlink()


def _remove_abandoned(path: Path) -> None:
    """Remove what processes of this host that were killed have left of a file."""
    for partial in path.parent.glob(PARTIAL_NAME.format(name=escape(path.name), process="*")):
        *_, process, _ = partial.name.split(".")
        if process == str(os.getpid()) or not Path("/proc", process).exists():
            partial.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
