"""Digests of data files and of the user's code, by which a later run knows them again."""

from __future__ import annotations

import hashlib
import inspect
import io
import sys
import sysconfig
import tokenize
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from waferstream.core.units import MIB

_MOST_FILES = 10_000  # of a folder
_MOST_BYTES = 64 * MIB  # that are read; of more, the beginnings and ends of files
_LEAST_BYTES = 4096  # of a file
_OWN = ("modelzoo", "cstorch", "waferstream", "torch", "builtins")
_PASSING = (".lock", ".partial", ".tmp")  # files that loaders leave in a folder of data
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING}


def file_digest(path: Path) -> str | None:
    """Return size and checksum of a file, or of the files of a folder; None if there is none.

    Where the files lie is no part of it.
    """
    try:
        files = [path] if path.is_file() else list(_files_in(path)) if path.is_dir() else []
        if not files:
            return None
        limit = max(_MOST_BYTES // len(files), _LEAST_BYTES)
        checksum, total = 0, 0
        for file in files:
            size = file.stat().st_size
            name = "" if file == path else str(file.relative_to(path))
            checksum = zlib.crc32(f"{name} {size} ".encode(errors="replace"), checksum)
            for piece in _pieces(file, size, limit):
                checksum = zlib.crc32(piece, checksum)
            total += size
    except (OSError, ValueError):  # no path at all, or none that can be read here
        return None
    return f"{total} bytes, CRC {checksum:08x}"


def code_digest(modules: Iterable[str]) -> str:
    """Return a digest of the user's modules among some; comments and empty lines do not count."""
    digest = hashlib.sha256()
    for name in sorted(set(modules)):
        if (text := _source(name)) is not None:
            digest.update(f"{name} ".encode())
            digest.update(_without_layout(text).encode())
    return digest.hexdigest()[:16]


def _files_in(folder: Path) -> Iterator[Path]:
    found = (
        each
        for each in sorted(folder.rglob("*"))
        if each.suffix not in _PASSING and not each.name.startswith(".") and each.is_file()
    )
    for _, file in zip(range(_MOST_FILES), found, strict=False):
        yield file


def _pieces(file: Path, size: int, limit: int) -> Iterator[bytes]:
    with file.open("rb") as content:
        if size <= limit:
            yield content.read(limit)
            return
        yield content.read(limit // 2)
        content.seek(size - limit // 2)
        yield content.read(limit // 2)


def _source(name: str) -> str | None:
    """Return the text of a module of the user's, None for those of packages and without files."""
    module = sys.modules.get(name)
    if module is None or name.split(".", maxsplit=1)[0] in _OWN:
        return None
    try:
        file = Path(inspect.getsourcefile(module) or "").resolve()
        is_installed = "site-packages" in file.parts or "dist-packages" in file.parts
        if is_installed or file.is_relative_to(sysconfig.get_path("stdlib")):
            return None
        return file.read_text(encoding="utf-8")
    except (OSError, TypeError, ValueError):
        return None


def _without_layout(text: str) -> str:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text
    return " ".join(token.string for token in tokens if token.type not in _LAYOUT)
