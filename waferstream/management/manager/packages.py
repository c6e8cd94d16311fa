"""Packages of working directories: zip files named by their SHA-256, unpacked with limits."""

from __future__ import annotations

import errno
import zipfile
import zlib
from hashlib import file_digest
from pathlib import Path, PurePosixPath

from waferstream.core.errors import ConfigError
from waferstream.host.user_state import make_private
from waferstream.management.model.packages import MOST_BYTES, MOST_FILES, MOST_PACKED_BYTES

_FAULTS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError)
"""Errors of a damaged or encrypted zip file, or one whose names do not go together."""

_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)

_DIGEST_LETTERS = set("0123456789abcdef")


class Packages:
    """The packages that users have uploaded.

    Args:
        folder: Of the zip files; only this user can enter it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_private(folder)

    def path(self, digest: str) -> Path:
        """Return where the package with a digest is.

        Raises:
            ConfigError: It was not uploaded.
        """
        path = self._folder / f"{digest}.zip"
        is_digest = len(digest) == 64 and set(digest) <= _DIGEST_LETTERS
        if not is_digest or not path.is_file():
            raise ConfigError(
                "the package must have been uploaded",
                code="package-not-uploaded",
                value=digest,
                remedy="upload it, then submit the workflow",
            )
        return path

    def keep(self, uploaded: Path) -> str:
        """Move an uploaded file into the folder, and return its digest.

        Raises:
            ConfigError: It is no package, too large, or has paths that lead elsewhere.
        """
        check_package(uploaded)
        with open(uploaded, "rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        uploaded.replace(self._folder / f"{digest}.zip")
        return digest

    def partial(self, name: str) -> Path:
        """Return a path for an upload, on the same disk."""
        return self._folder / f".{name}.partial"


def check_package(path: Path) -> None:
    """Read the directory of a zip file, and refuse one that must not be unpacked.

    Raises:
        ConfigError: It is broken, too large, or has paths that lead elsewhere.
    """
    if path.stat().st_size > MOST_PACKED_BYTES:
        raise _refused("package-too-large", path.stat().st_size, f"{MOST_PACKED_BYTES:,} bytes")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise ConfigError(
            "the package must be a zip file", code="package-broken", value=error
        ) from error
    if len(entries) > MOST_FILES:
        raise _refused("package-too-large", len(entries), f"{MOST_FILES:,} files")
    size_bytes = sum(entry.file_size for entry in entries)
    if size_bytes > MOST_BYTES:
        raise _refused("package-too-large", size_bytes, f"{MOST_BYTES:,} bytes unpacked")
    for entry in entries:
        parts = PurePosixPath(entry.filename).parts
        is_link = entry.external_attr >> 28 == 0o12
        if entry.filename.startswith("/") or ".." in parts or is_link:
            raise _refused("path-escapes", entry.filename, "files below the working directory")


def unpack(package: Path, folder: Path) -> None:
    """Unpack a package into a folder; ConfigError where that is the fault of its author."""
    check_package(package)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(package) as archive:
            archive.extractall(folder)
    except _FAULTS as error:
        if isinstance(error, OSError) and error.errno in _OF_DISK:
            raise
        raise ConfigError(
            "the package must be a whole zip file", code="package-broken", value=error
        ) from error


def _refused(code: str, value: object, most: str) -> ConfigError:
    return ConfigError(
        "the package of the working directory is not taken",
        code=code,
        value=value,
        rule=f"at most {most}" if code == "package-too-large" else most,
        remedy="list what is not needed in .waferstreamignore",
    )
