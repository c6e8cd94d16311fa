"""Documents are read from text, lines and tables, in portions that divide none of them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.errors import raises
from waferstream.core.errors import DataError
from waferstream.preparation.documents import Document, Fields, documents, portions

TEXTS = ["one", "zwei\nLinien", "trois é", "x" * 50, "five"]
TEXT = Fields("text")


def write_lines(path: Path, texts: list[str], **keys: str) -> Path:
    lines = "".join(json.dumps({"text": text, **keys}, ensure_ascii=False) + "\n" for text in texts)
    path.write_text(lines, encoding="utf-8")
    return path


def read(paths: list[Path], most_bytes: int = 1000, fields: Fields = TEXT) -> list[str]:
    parts = portions(paths, most_bytes)
    return [each.text for part in parts for each in documents(part, fields)]


@pytest.mark.parametrize("most_bytes", [1, 2, 7, 20, 64, 1000])
def test_portions_of_lines_hold_each_document_once(tmp_path: Path, most_bytes: int) -> None:
    """A line belongs to the portion in which it begins."""
    path = write_lines(tmp_path / "a.jsonl", TEXTS)
    assert read([path], most_bytes) == TEXTS


def test_last_line_may_lack_its_end_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n\n{"text": ""}\n{"text": "b"}')
    assert read([path]) == ["a", "b"]


def test_compressed_lines_are_one_portion(tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "a.jsonl", TEXTS)
    path = tmp_path / "b.jsonl.gz"
    path.write_bytes(gzip.compress(plain.read_bytes()))
    assert read([path], 10) == TEXTS
    path.write_bytes(gzip.compress(plain.read_bytes())[:-12])
    with raises(DataError, "text-file-damaged"):
        read([path])


def test_text_file_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n".join(TEXTS), encoding="utf-8")
    assert read([path], 5) == ["\n".join(TEXTS)]
    path.write_bytes("é".encode("latin1"))
    with raises(DataError, "text-not-utf-8"):
        read([path])


def test_small_files_share_a_portion(tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.txt" for n in range(6)]
    for path in paths:
        path.write_text("four")
    assert [len(part) for part in portions(paths, 12)] == [3, 3]


def test_table_is_read_by_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"text": TEXTS, "prompt": ["p"] * 5, "id": [1, 2, 3, 4, 5]})
    parquet.write_table(table, path, row_group_size=2)
    assert len(portions([path], 1)) == 3
    assert read([path], 1) == TEXTS
    (first, *_) = documents(portions([path], 1)[0], Fields("text", "prompt"))
    assert first == Document("one", "p")
    with raises(DataError, "record-without-text") as caught:
        read([path], fields=Fields("txt"))
    assert caught.value.remedy == "did you mean 'text'?"
    path.write_bytes(b"nonsense")
    with raises(DataError, "text-file-damaged"):
        read([path])


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", "line-not-json"),
        ("[1]", "line-not-a-record"),
        ('{"txt": "a"}', "record-without-text"),
        ('{"text": 3}', "record-without-text"),
    ],
)
def test_wrong_line_is_refused_by_its_place(tmp_path: Path, line: str, code: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "a"}}\n{line}\n')
    with raises(DataError, code) as caught:
        read([path])
    assert caught.value.where == f"{path}, byte 14"
