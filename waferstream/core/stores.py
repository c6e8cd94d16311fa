"""Folders in object stores (``s3://bucket/run``), through copies on this host.

A run works in a local folder, the *mirror*, whose path tells the URL. What it writes there is
pushed to the store; what is not there yet is pulled before. A file that cannot be pushed stays in
the mirror, and the next push takes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.host.user_state import state_folder

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+(.+)")
"""Of a store; also as a path, in which the second slash is lost."""

_PROBE = ".waferstream_probe"


def _mirrors() -> Path:
    return state_folder() / "stores"


def local_folder(value: Any) -> Any:
    """Return the mirror of a URL of a store; any other value unchanged."""
    found = _URL.fullmatch(str(value)) if isinstance(value, str | Path) else None
    if found is None:
        return value
    parts = [part for part in found[2].split("/") if part not in ("", ".", "..")]
    return _mirrors().joinpath(found[1].lower(), *parts)


def store_of(folder: Path) -> Store | None:
    """Return the store that a folder mirrors; None for any other folder."""
    mirrors = _mirrors()
    if not folder.is_relative_to(mirrors) or folder == mirrors:
        return None
    protocol, *parts = folder.relative_to(mirrors).parts
    return Store(f"{protocol}://{'/'.join(parts)}", folder)


class Store:
    """A folder of a store, and its mirror on this host."""

    def __init__(self, url: str, mirror: Path) -> None:
        self.url = url
        self.mirror = mirror
        self._pushed: dict[str, tuple[int, int]] = {}  # size and time by name

    def check(self) -> None:
        """Write and remove a small object.

        Raises:
            CheckpointError: The store denies it, or is not there.
            ConfigError: The package for stores of this kind is not installed.
        """
        with self._denials("the folder must be writable in its store"):
            path = f"{self.url}/{_PROBE}"
            self._files.pipe_file(path, b"")
            self._files.rm_file(path)

    def pull(self, wanted: Callable[[Collection[str]], Collection[str]]) -> None:
        """Copy files of the folder that the mirror lacks; ``wanted`` chooses among their names."""
        self.mirror.mkdir(parents=True, exist_ok=True)
        with self._denials("the folder must be readable in its store"):
            try:
                found = self._files.ls(self.url, detail=True, refresh=True)
            except FileNotFoundError:
                return
            sizes = {Path(e["name"]).name: e["size"] for e in found if e["type"] == "file"}
            for name in wanted(sizes):
                target = self.mirror / name
                if not target.exists():
                    self._files.get_file(f"{self.url}/{name}", str(target))
                if target.stat().st_size == sizes[name]:
                    self._pushed[name] = _stamp(target)

    def push(self) -> None:
        """Copy the files of the mirror that have changed, and remove those that it has removed.

        Raises:
            CheckpointError: The store denies it; the files stay in the mirror.
        """
        with self._denials("files could not be copied to their store"):
            here = {each.name: each for each in self.mirror.iterdir() if _is_file(each)}
            for name, path in here.items():
                stamp = _stamp(path)
                if self._pushed.get(name) != stamp:
                    self._files.put_file(str(path), f"{self.url}/{name}")
                    self._pushed[name] = stamp
            for name in self._pushed.keys() - here.keys():
                self._files.rm_file(f"{self.url}/{name}")
                del self._pushed[name]

    @property
    def _files(self) -> Any:
        """The file system of fsspec."""
        protocol = self.url.partition("://")[0]
        try:
            return import_module("fsspec").filesystem(protocol)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                "the package for stores of this kind must be installed",
                code="store-not-known",
                where=self.url,
                value=error,
                remedy="pip install 'waferstream[stores]' for s3://; fsspec names those of others",
            ) from error

    @contextmanager
    def _denials(self, what: str) -> Iterator[None]:
        """Raise CheckpointError for what a store answers."""
        try:
            yield
        except (ConfigError, CheckpointError):
            raise
        except Exception as error:  # of many kinds, by the store
            raise CheckpointError(
                what,
                code="store-denies",
                where=self.url,
                value=f"{type(error).__name__}: {error}",
                rule="credentials and endpoint are those of its own tools (AWS_ACCESS_KEY_ID, "
                "AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, ~/.aws)",
                remedy=f"what was written is in {self.mirror}; the same command copies it",
            ) from error


def _is_file(path: Path) -> bool:
    """Return whether a file is complete, and meant for the store."""
    return path.is_file() and not path.is_symlink() and not path.name.startswith(".")


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
