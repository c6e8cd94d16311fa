"""Documents of text files, of lines of JSON and of tables, in portions of a bounded size."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from waferstream.core.errors import DataError, did_you_mean
from waferstream.core.extras import extra_package

LINES, TABLE = ".jsonl", ".parquet"
SUFFIXES = (".txt", ".md", LINES, TABLE, ".txt.gz", f"{LINES}.gz")
"""Of the files that are read from a folder."""

_COMPRESSED = ".gz"


@dataclass(frozen=True)
class Document:
    """A text, and what comes before it without a loss."""

    text: str
    prompt: str = ""


@dataclass(frozen=True)
class Piece:
    """A part of a file: lines that begin in [start, stop), or row groups of a table."""

    path: Path
    start: int
    stop: int


Portion = tuple[Piece, ...]


@dataclass(frozen=True)
class Fields:
    """Keys of a line, or columns of a table."""

    text: str
    prompt: str | None = None

    @property
    def names(self) -> list[str]:
        """The keys that every record must have."""
        return [self.text] if self.prompt is None else [self.text, self.prompt]

    def document(self, record: object, where: str) -> Document:
        """Return the document of a record.

        Raises:
            DataError: The record lacks a key, or a value is no text.
        """
        if not isinstance(record, Mapping):
            raise _not_a_record(where, type(record).__name__)
        for name in self.names:
            if not isinstance(record.get(name), str):
                raise _no_text(where, name, record)
        return Document(record[self.text], "" if self.prompt is None else record[self.prompt])


def portions(files: Sequence[Path], most_bytes: int) -> list[Portion]:
    """Return the pieces of files in portions of about ``most_bytes`` of text, in order."""
    found: list[list[Piece]] = [[]]
    filled = 0
    for piece, num_bytes in _pieces(files, most_bytes):
        if found[-1] and filled + num_bytes > most_bytes:
            found.append([])
            filled = 0
        found[-1].append(piece)
        filled += num_bytes
    return [tuple(pieces) for pieces in found if pieces]


def _pieces(files: Sequence[Path], most_bytes: int) -> Iterator[tuple[Piece, int]]:
    """Yield the pieces of files, and their bytes: a document is never divided."""
    for path in files:
        if path.suffix == TABLE:
            with _table(path) as table:
                for group in range(table.num_row_groups):
                    num_bytes = table.metadata.row_group(group).total_byte_size
                    yield Piece(path, group, group + 1), num_bytes
            continue
        size = path.stat().st_size
        step = most_bytes if path.suffix == LINES else max(size, 1)
        for start in range(0, size, step):
            stop = min(start + step, size)
            yield Piece(path, start, stop), stop - start


def documents(portion: Portion, fields: Fields) -> Iterator[Document]:
    """Yield the documents of a portion that are not empty.

    Raises:
        DataError: A file is damaged, or a record has no text.
    """
    for piece in portion:
        for document in _documents(piece, fields):
            if document.text:
                yield document


def _documents(piece: Piece, fields: Fields) -> Iterator[Document]:
    path = piece.path
    if path.suffix == TABLE:
        yield from _rows(piece, fields)
    elif path.name.removesuffix(_COMPRESSED).endswith(LINES):
        for place, line in _lines(piece):
            where = f"{path}, byte {place:,}"
            if line.strip():
                yield fields.document(_record(line, where), where)
    else:
        with _opened(path) as file:
            yield Document(_text(file.read(), path))


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path, "rb") if path.suffix == _COMPRESSED else path.open("rb")


def _lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin in a piece, with the byte at which each does."""
    is_whole = piece.path.suffix == _COMPRESSED  # its length is known when it has been read
    try:
        with _opened(piece.path) as file:
            place = piece.start
            if place:
                file.seek(place - 1)
                place += len(file.readline()) - 1
            while (is_whole or place < piece.stop) and (line := file.readline()):
                yield place, line
                place += len(line)
    except (gzip.BadGzipFile, EOFError) as error:
        raise _damaged(piece.path, error) from error


def _record(line: bytes, where: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise DataError(
            "every line must be JSON",
            code="line-not-json",
            where=where,
            value=error,
            rule="one object in each line",
        ) from error


def _text(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            "the text must be UTF-8",
            code="text-not-utf-8",
            where=str(path),
            value=error,
            remedy=f"iconv -f latin1 -t utf-8 {path.name}, with the encoding that it has",
        ) from error


def _rows(piece: Piece, fields: Fields) -> Iterator[Document]:
    with _table(piece.path) as table:
        columns = table.schema_arrow.names
        missing = [name for name in fields.names if name not in columns]
        if missing:
            raise _no_text(str(piece.path), missing[0], dict.fromkeys(columns))
        groups = list(range(piece.start, piece.stop))
        for batch in table.iter_batches(row_groups=groups, columns=fields.names):
            for record in batch.to_pylist():
                yield fields.document(record, f"{piece.path}, row group {piece.start}")


def _table(path: Path) -> Any:
    """Open a table; DataError if it is damaged."""
    package = extra_package("pyarrow", "data")
    try:
        return extra_package("pyarrow.parquet", "data").ParquetFile(path)
    except package.ArrowInvalid as error:
        raise _damaged(path, error) from error


def _no_text(where: str, name: str, record: Mapping[str, Any]) -> DataError:
    texts = [key for key, value in record.items() if isinstance(value, str | None)]
    return DataError(
        f"every record must have a text under {name!r}",
        code="record-without-text",
        where=where,
        value=repr(record[name])[:80] if name in record else f"keys {', '.join(record)}",
        rule="text_key and prompt_key name keys of lines, or columns of tables",
        remedy=did_you_mean(name, texts) or f"set text_key to one of {', '.join(texts)}",
    )


def _not_a_record(where: str, kind: str) -> DataError:
    return DataError(
        "every line must be an object of JSON",
        code="line-not-a-record",
        where=where,
        value=kind,
        rule='a line such as {"text": "..."}',
    )


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(
        "the file is damaged, or not what its name says",
        code="text-file-damaged",
        where=str(path),
        value=error,
        remedy="copy it again",
    )
