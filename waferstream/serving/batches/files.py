"""Files of clients, in a folder."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, ValidationError

from waferstream.core.errors import ConfigError
from waferstream.host.files import replacing, write_json
from waferstream.host.locks import locked

log = logging.getLogger("waferstream")

FILE_BYTES = 200 << 20
"""The largest file."""

FOLDER_BYTES = 8 << 30
"""The most that all files have together."""


_NAME = 255
"""The most characters of the name that a client gives a file."""


class StoredFile(BaseModel):
    """What is known of a file, as OpenAI's clients read it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"


class FileStore:
    """The files of a folder: of each its content, ``ID.jsonl``, and what is known, ``ID.json``.

    Args:
        folder: Where they lie; no other process changes it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = {file.id: file for file in _kept(folder)}

    def all(self) -> list[StoredFile]:
        """Return all files, the oldest first."""
        return sorted(self._files.values(), key=lambda file: (file.created_at, file.id))

    def get(self, name: str) -> StoredFile | None:
        """Return what is known of a file, None if it is not there."""
        return self._files.get(name)

    def content(self, name: str) -> Path:
        """Return where the content of a file lies, or will lie."""
        return self._folder / f"{name}.jsonl"

    def add(self, source: BinaryIO, filename: str) -> StoredFile:
        """Keep what a client sends, for a batch.

        Raises:
            ConfigError: There is no room for more files.
            OSError: It cannot be written; then nothing of it is left.
        """
        if sum(file.bytes for file in self._files.values()) > FOLDER_BYTES - FILE_BYTES:
            raise ConfigError(
                "files of clients must have room",
                code="files-full",
                rule=f"at most {FOLDER_BYTES} bytes together",
                remedy="delete files that are not needed",
            )
        name = f"file-{uuid4().hex}"
        with replacing(self.content(name)) as partial, partial.open("xb") as target:
            shutil.copyfileobj(source, target)
        try:
            return self.keep(name, filename, "batch")
        except OSError:
            self.delete(name)
            raise

    def keep(
        self, name: str, filename: str, purpose: Literal["batch", "batch_output"]
    ) -> StoredFile:
        """Let a file be there, whose content was written.

        Raises:
            OSError: What is known of it cannot be written: it is there until the service ends.
        """
        size = self.content(name).stat().st_size
        file = StoredFile(
            id=name,
            bytes=size,
            created_at=int(time.time()),
            filename=filename[:_NAME],
            purpose=purpose,
        )
        self._files[name] = file
        write_json(self._folder / f"{name}.json", file.model_dump())
        return file

    def delete(self, name: str) -> None:
        """Remove a file."""
        del self._files[name]
        (self._folder / f"{name}.json").unlink(missing_ok=True)
        self.content(name).unlink(missing_ok=True)


@contextmanager
def files_folder(folder: Path | None) -> Iterator[Path]:
    """Claim the folder of a service for its files; without one, a private one that ends with it.

    Raises:
        ConfigError: Another service has it, or it cannot be written.
    """
    if folder is None:
        with TemporaryDirectory(prefix="waferstream-files-") as made:
            yield Path(made)
        return
    with ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(locked(folder / ".lock", 0))
        except OSError as error:
            raise ConfigError(
                "the folder for files must be writable, and free",
                code="files-folder-not-usable",
                where=str(folder),
                value=error.strerror,
                rule="one service at a time keeps its files there",
                remedy="name another folder by --files",
            ) from error
        yield folder


def _kept(folder: Path) -> Iterator[StoredFile]:
    """Yield the files that a service has left."""
    for path in sorted(folder.glob("file-*.json")):
        try:
            file = StoredFile.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            log.warning("%s says nothing of a file: %s", path, error)
            continue
        if path.stem == file.id and path.with_suffix(".jsonl").is_file():
            yield file
