"""Checkpoint files that stay readable while a process needs them, renamed or removed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_TEMPORARY = "waferstream-{pid}-{unique}.mdl"


class HeldFile:
    """An open file: its bytes can be read after it was renamed or removed, until it is closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    @classmethod
    def written_by(cls, write: Callable[[Path], object]) -> HeldFile:
        """Hold a new file that ``write`` makes; its name is gone afterwards."""
        with _temporary() as path:
            write(path)
            return cls(path)

    @contextmanager
    def named(self) -> Iterator[Path]:
        """Yield a path to the file: its name now, or that of a copy if it has none.

        HDF5 opens files by their names only.
        """
        link = f"/proc/self/fd/{self._file.fileno()}"
        name = Path(os.readlink(link))
        if _same_file(name, Path(link)):
            yield name
            return
        with _temporary() as path:
            self._file.seek(0)
            with path.open("wb") as copy:
                shutil.copyfileobj(self._file, copy)
            yield path

    def close(self) -> None:
        """Let the file go. Idempotent."""
        self._file.close()


@contextmanager
def _temporary() -> Iterator[Path]:
    """Yield a path for a file that is removed at the end; remove those of killed processes."""
    folder = Path(tempfile.gettempdir())
    for path in folder.glob(_TEMPORARY.format(pid="*", unique="*")):
        owner = re.match(r"waferstream-(\d+)-", path.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            path.unlink(missing_ok=True)
    path = folder / _TEMPORARY.format(pid=os.getpid(), unique=uuid.uuid4().hex)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
