"""The working directory as a package that travels: what is not ignored, within limits."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

from waferstream.core.errors import ConfigError
from waferstream.management.model.packages import MOST_BYTES, MOST_FILES

IGNORE_FILES = (".waferstreamignore", ".gitignore")
"""The first one that is there says what stays, in the syntax of gitignore(5)."""

_NEVER = (
    ".git/", ".venv/", "__pycache__/", "*.pyc", "node_modules/", "model_dir*/", "*.mdl",
    ".mypy_cache/", ".ruff_cache/", ".pytest_cache/", ".hypothesis/",
)  # fmt: skip


def pack(folder: Path, target: Path) -> None:
    """Write the package of a folder; the same files give the same bytes.

    Raises:
        ConfigError: It has too many files or bytes.
    """
    paths = sorted(_taken(folder))
    _check_size(folder, paths)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in paths:
            info = zipfile.ZipInfo(path.as_posix())  # of 1980: times do not count
            source = folder / path
            info.external_attr = (source.stat().st_mode & 0o777) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, source.read_bytes())


def _taken(folder: Path) -> Iterator[Path]:
    """Return the files of a folder that are not ignored, relative to it.

    A link to a file elsewhere stays, as a key beside the user's other files would travel with it.
    """
    home = folder.resolve()
    ignored = GitIgnoreSpec.from_lines([*_NEVER, *_lines(folder)])
    for root, names, files in os.walk(folder):
        below = Path(root).relative_to(folder)
        names[:] = [name for name in names if not ignored.match_file(f"{below / name}/")]
        for name in files:
            path = below / name
            source = (folder / path).resolve()
            is_within = source.is_relative_to(home) and source.is_file()
            if is_within and not ignored.match_file(path.as_posix()):
                yield path


def _lines(folder: Path) -> list[str]:
    found = (folder / name for name in IGNORE_FILES)
    file = next((path for path in found if path.is_file()), None)
    return [] if file is None else file.read_text(errors="replace").splitlines()


def _check_size(folder: Path, paths: list[Path]) -> None:
    size_bytes = sum((folder / path).stat().st_size for path in paths)
    if len(paths) > MOST_FILES or size_bytes > MOST_BYTES:
        raise ConfigError(
            "the working directory must be small enough to travel",
            code="package-too-large",
            where=str(folder),
            value=f"{len(paths):,} files, {size_bytes:,} bytes",
            rule=f"at most {MOST_FILES:,} files, {MOST_BYTES:,} bytes",
            remedy="list what is not needed in .waferstreamignore, as data that the cluster has",
        )
