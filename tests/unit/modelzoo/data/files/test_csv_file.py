"""Rows of CSV files are found by their place, whatever their values hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelzoo.data.files.csv_file import number, numbers, open_folders, words
from tests.support.errors import raises
from tests.support.files.dataset_files import write_csv
from waferstream.core.errors import DataError


def test_rows_of_files_are_read_in_any_order(tmp_path: Path) -> None:
    """Values may hold commas, quotes and ends of lines."""
    texts = ['a, "b"', "two\nlines", "", '"', "é"]
    write_csv(tmp_path / "a.csv", [[text, number] for number, text in enumerate(texts)], "xy")
    write_csv(tmp_path / "b.csv", [["last", 5]], "xy")
    rows = open_folders([str(tmp_path)])
    read = rows.read(np.array([5, 1, 0, 4, 3, 2, 1]))
    assert [row["y"] for row in read] == ["5", "1", "0", "4", "3", "2", "1"]
    assert [row["x"] for row in read[:3]] == ["last", "two\nlines", 'a, "b"']
    assert (len(rows), sorted(rows.columns)) == (6, ["x", "y"])


def test_last_row_needs_no_end_of_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n2")
    (tmp_path / "meta.dat").write_text("a.csv 2\n")
    assert open_folders([str(tmp_path)]).read(np.array([1])) == [{"x": "2"}]


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        (None, "csv-meta-missing"),
        ("", "csv-damaged"),
        ("a.csv many\n", "csv-damaged"),
        ("a.csv 3\n", "csv-row-count-mismatch"),
        ("b.csv 2\n", "csv-damaged"),
        ("../a.csv 2\n", "csv-damaged"),
    ],
)
def test_wrong_lists_of_files_are_refused(tmp_path: Path, meta: str | None, code: str) -> None:
    """None, an empty one, another number of rows, a missing file, a file of another folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.csv").write_text("x\n1\n2\n")
    if meta is not None:
        (folder / "meta.dat").write_text(meta)
    with raises(DataError, code):
        open_folders([str(folder)])


def test_row_with_another_number_of_values_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1\n")
    (tmp_path / "meta.dat").write_text("a.csv 1\n")
    with raises(DataError, "csv-damaged"):
        open_folders([str(tmp_path)]).read(np.array([0]))


def test_lists_are_read_as_python_writes_them() -> None:
    """Nothing is executed."""
    assert words(str(["a", "'", '"']), "x") == ["a", "'", '"']
    assert numbers("[1, 2]", "x") == [1, 2]
    assert numbers(" 7", "x") == [7]
    for text in ("['a'", "print('a')", "[1]"):
        with raises(DataError, "csv-damaged"):
            words(text, "x")
    with raises(DataError, "csv-damaged"):
        numbers("[1, 2]", "x", most=1)


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "[1.5]", "1e30", str(2**63), "1" + "0" * 400]
)
def test_number_that_is_no_int64_is_refused(text: str) -> None:
    with raises(DataError, "csv-damaged"):
        numbers(text, "x")


def test_whole_number_may_be_written_as_a_float() -> None:
    assert numbers("[1.0, -2]", "x") == [1, -2]
    assert number("3.0", "x") == 3


def test_empty_list_is_no_number() -> None:
    assert numbers("[]", "x") == []
    with raises(DataError, "csv-damaged"):
        number("[]", "x")


def test_file_that_is_gone_is_a_typed_error(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [["1"]], "x")
    rows = open_folders([str(tmp_path)])
    (tmp_path / "a.csv").unlink()
    with raises(DataError, "csv-damaged"):
        rows.read(np.array([0]))
