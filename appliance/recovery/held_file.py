"""Checkpoint files that stay readable while a process needs them, renamed or removed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "waferstream-held-"
_FILE = "weights.mdl"


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
    """Yield a path for a file that is removed at the end, in a folder that only this user reads.

    Folders of killed processes are removed, too.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as folder:
        yield Path(folder) / _FILE


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes of this user that have ended left behind."""
    for path in folder.glob(f"{_PREFIX}*"):
        owner = re.match(rf"{_PREFIX}(\d+)-", path.name)
        if owner and not Path(f"/proc/{owner[1]}").exists():
            shutil.rmtree(path, ignore_errors=True)  # it may be another user's


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
