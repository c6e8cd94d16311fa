"""The files of a run, as they appear in the folder of the one who has submitted it."""

from __future__ import annotations

import os
from pathlib import Path

from waferstream.core.errors import ConfigError, DataError
from waferstream.host.files import replacing
from waferstream.management.client.client import Client
from waferstream.management.model.operations import FileEntry

CHECKPOINTS = (".mdl",)
"""Endings of files that stay with the run until they are exported."""


class Mirror:
    """The copies of a run's files in a folder of the user.

    Args:
        client: Where the files come from.
        workflow: The run.
        folder: The folder.
        takes_checkpoints: Whether checkpoints are copied, too.
    """

    def __init__(
        self, client: Client, workflow: str, folder: Path, *, takes_checkpoints: bool = False
    ) -> None:
        self._client = client
        self._workflow = workflow
        self._folder = folder
        self._skipped = () if takes_checkpoints else CHECKPOINTS
        self._known: dict[str, FileEntry] = {}

    def update(self, entries: list[FileEntry]) -> list[Path]:
        """Copy files that are new or have changed; return their paths.

        Raises:
            DataError: A path of the run leads out of the folder.
        """
        changed = [entry for entry in entries if self._is_wanted(entry)]
        return [self._copy(entry) for entry in changed]

    def _is_wanted(self, entry: FileEntry) -> bool:
        return not entry.path.endswith(self._skipped) and self._known.get(entry.path) != entry

    def _copy(self, entry: FileEntry) -> Path:
        target = self._target(entry.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(target) as partial, open(partial, "wb") as file:
                for piece in self._client.download(self._workflow, entry.path):
                    file.write(piece)
            os.utime(target, (entry.changed_s, entry.changed_s))
        except ConfigError:  # it is gone by now
            return target
        self._known[entry.path] = entry
        return target

    def _target(self, path: str) -> Path:
        root = self._folder.resolve()
        target = (root / path).resolve()
        if not target.is_relative_to(root):
            raise DataError(
                "a file of a run must be below its folder",
                code="path-escapes",
                where=self._workflow,
                value=path,
            )
        return target
