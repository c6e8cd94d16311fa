"""Where workflows have their files.

<folder>/
    packages/<digest>.zip
    launches/                     of the launcher
    users/<user>/                 state folder of the user's runs: caches, keys
    workflows/<name>/work/        the unpacked package
                    /model_dir/   what the run writes
                    /log          what it prints
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from waferstream.core.errors import ConfigError, RequestRefused
from waferstream.core.units import format_bytes
from waferstream.host.user_state import make_private
from waferstream.management.manager.packages import Packages, unpack
from waferstream.management.model.operations import PRINTED, FileEntry

_TAIL_BYTES = 16 << 10


class Folders:
    """The files of the workflows of a management.

    Args:
        root: Of all files; only the user of the management can enter it.
        most_bytes: What the workflows of a user may keep before another one is refused; None for
            any amount.
    """

    def __init__(self, root: Path, most_bytes: int | None = None) -> None:
        self._root = root
        self._most_bytes = most_bytes
        make_private(root)
        self.packages = Packages(root / "packages")

    def model_dir(self, name: str) -> Path:
        """Return where the run of a workflow writes."""
        return self._root / "workflows" / name / "model_dir"

    def log(self, name: str) -> Path:
        """Return the file with all that a workflow has printed."""
        return self._root / "workflows" / name / "log"

    def state_of(self, user: str) -> Path:
        """Return the state folder of a user's runs."""
        return self._root / "users" / quote(user, safe="")

    def prepare(self, name: str, package: str) -> Path:
        """Make the folders of a workflow, and return its working directory."""
        work = self._root / "workflows" / name / "work"
        if not work.is_dir():
            work.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = work.with_name(".work")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            if package:
                unpack(self.packages.path(package), partial)
            partial.rename(work)
        self.model_dir(name).mkdir(exist_ok=True)
        return work

    def files(self, name: str) -> list[FileEntry]:
        """Return what a run has written, without links and partial files."""
        root = self.model_dir(name)
        entries = []
        for path in sorted(root.rglob("*")):
            if path.is_symlink() or not path.is_file() or path.name.startswith("."):
                continue
            status = path.stat()
            entries.append(
                FileEntry(
                    path=str(path.relative_to(root)),
                    size_bytes=status.st_size,
                    changed_s=status.st_mtime,
                )
            )
        return entries

    def file(self, name: str, path: str) -> Path:
        """Return where a file of a run is.

        Raises:
            ConfigError: There is none, or the path leads elsewhere.
        """
        root = self.model_dir(name).resolve()
        found = (root / path).resolve()
        if path == PRINTED and self.log(name).is_file():
            return self.log(name)
        if not found.is_relative_to(root) or not found.is_file():
            raise ConfigError(
                "the file must be one that the run has written",
                code="data-file-not-found",
                where=name,
                value=path,
                remedy="list its files",
            )
        return found

    def check_quota(self, user: str, names: Iterable[str]) -> None:
        """Refuse another workflow of a user whose earlier ones keep too much.

        Raises:
            RequestRefused: They have more bytes than a user may keep.
        """
        if self._most_bytes is None:
            return
        used_bytes = sum(_size_bytes(self._root / "workflows" / name) for name in names)
        if used_bytes > self._most_bytes:
            raise RequestRefused(
                "the files of a user's workflows must fit on the disk that they were given",
                code="disk-quota-exceeded",
                where=user,
                value=format_bytes(used_bytes),
                rule=f"at most {format_bytes(self._most_bytes)}",
                remedy="export what you need: files go a week after the end of a workflow",
            )

    def log_tail(self, name: str) -> str:
        """Return the last lines that a workflow has printed."""
        path = self.log(name)
        if not path.is_file():
            return ""
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace")

    def delete(self, names: Iterable[str]) -> None:
        """Delete all files of workflows."""
        for name in names:
            shutil.rmtree(self._root / "workflows" / name, ignore_errors=True)


def _size_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder; those that go meanwhile do not count."""
    size_bytes = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size_bytes += path.lstat().st_size
    return size_bytes
