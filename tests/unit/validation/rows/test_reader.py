"""Files of published rows are read whole, or refused with file, row, field and rule."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from tests.support.timing.reference_rows import published, row, write_rows
from validation.rows.reader import PUBLISHED, check_unique, read_rows
from validation.rows.row import COLUMNS, Kind, Row
from waferstream.core.errors import ConfigError


def _read_one(folder: Path, kind: Kind = "kernels", **fields: str) -> Row:
    (read,) = read_rows(write_rows(folder / "rows.csv", row(kind=kind, **fields)))
    return read


def test_published_files_are_complete() -> None:
    """716 rows with unique ids; each mark occurs, and every row names its source."""
    rows = published()
    assert len(rows) == sum(len(read_rows(path)) for path in PUBLISHED) == 716
    assert {row.use for row in rows.values()} == {"calibration", "validation", "context"}
    assert all(row.text("source") and row.text("locator") for row in rows.values())


@pytest.mark.parametrize("kind", COLUMNS)
def test_kind_follows_from_the_columns_in_any_order(tmp_path: Path, kind: Kind) -> None:
    """A file with reversed columns is still of the same kind."""
    reversed_columns = dict(reversed(row(kind=kind).items()))
    (read,) = read_rows(write_rows(tmp_path / "rows.csv", reversed_columns))
    assert read.kind == kind
    assert read.fields == row(kind=kind)


def test_workload_may_be_called_model(tmp_path: Path) -> None:
    """As in files of rows of the inference service."""
    path = write_rows(tmp_path / "rows.csv", row(kind="service"))
    path.write_text(path.read_text().replace("workload", "model", 1))
    assert read_rows(path)[0].text("workload") == row()["workload"]


def test_line_of_a_row_is_its_first_line(tmp_path: Path) -> None:
    """Line breaks in a column and empty lines do not shift the reported line."""
    path = write_rows(tmp_path / "rows.csv", row("K1", notes="a\nb"), row("K2"))
    path.write_text(path.read_text() + "\n" + ",".join(row("K3").values()) + "\n")
    assert [one.line for one in read_rows(path)] == [2, 4, 6]


def test_evidence_of_gpu_rows_is_silicon(tmp_path: Path) -> None:
    """GPU files have no evidence column: all their values were measured."""
    assert _read_one(tmp_path, "gpu").evidence == "silicon"


@pytest.mark.parametrize("value", ["10-20", "2+2*(n/8)", "nan", "inf"])
def test_values_that_are_no_numbers_stay_text(tmp_path: Path, value: str) -> None:
    """Formulas, ranges and numbers that are not finite are kept, to be reported as skipped."""
    assert _read_one(tmp_path, value=value).value == value


def test_extra_columns_are_ignored(tmp_path: Path) -> None:
    """No prediction sees them."""
    (read,) = read_rows(write_rows(tmp_path / "rows.csv", {**row(), "predicted": "99"}))
    assert "predicted" not in read.fields


def test_missing_column_is_reported_with_a_similar_one(tmp_path: Path) -> None:
    """A misspelt column is the likely reason."""
    columns = row()
    columns["vector_lenght"] = columns.pop("vector_len")
    with raises(ConfigError, "column-missing") as caught:
        read_rows(write_rows(tmp_path / "rows.csv", columns))
    assert (caught.value.where or "").endswith("rows.csv, header, field vector_len")
    assert "vector_lenght" in (caught.value.remedy or "")


@pytest.mark.parametrize("mark", [";", "\t"])
def test_separators_other_than_commas_are_reported(tmp_path: Path, mark: str) -> None:
    """Spreadsheets of many countries write them."""
    path = tmp_path / "rows.csv"
    path.write_text(mark.join(row()) + "\n" + mark.join(row().values()) + "\n")
    with raises(ConfigError, "column-missing") as caught:
        read_rows(path)
    assert caught.value.remedy == "separate the columns by commas"


@pytest.mark.parametrize(
    ("field", "text", "code", "remedy"),
    [
        ("unit", "cylces", "unknown-unit", "'cycles'"),
        ("unit", "tokens/fortnight", "unknown-unit", ""),
        ("use", "validate", "unknown-use", "'validation'"),
        ("evidence", "silicone", "unknown-evidence", "'silicon'"),
        ("unit", "", "required-column-empty", ""),
        ("row_id", " ", "required-column-empty", ""),
        ("value", "", "required-column-empty", ""),
    ],
)
def test_invalid_rows_are_refused(
    tmp_path: Path, field: str, text: str, code: str, remedy: str
) -> None:
    """The error names file, line, field and rule, and the nearest known word if one is near."""
    path = write_rows(tmp_path / "rows.csv", row("K0001"), row(**{"row_id": "K0002", field: text}))
    with raises(ConfigError, code) as caught:
        read_rows(path)
    where = caught.value.where or ""
    assert f"{path}, line 3" in where
    assert where.endswith(f"field {field}")
    assert caught.value.rule
    assert remedy in (caught.value.remedy or "")


def test_row_ids_must_be_unique(tmp_path: Path) -> None:
    """In one file and over several files."""
    with raises(ConfigError, "row-id-not-unique") as caught:
        read_rows(write_rows(tmp_path / "rows.csv", row(), row()))
    assert "first at" in (caught.value.where or "")
    path = write_rows(tmp_path / "rows.csv", row())
    with raises(ConfigError, "row-id-not-unique"):
        check_unique([*read_rows(path), *read_rows(path)])


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "column-missing"),
        (",".join(COLUMNS["gpu"]) + "\n", "file-without-rows"),
        (",".join(COLUMNS["gpu"]) + "\nG0001,a\n", "row-width-differs"),
        (",".join(COLUMNS["gpu"]) + ",use\n", "column-not-unique"),
        (",".join(COLUMNS["gpu"]) + '\n"G0001,a\n', "file-not-csv"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, text: str, code: str) -> None:
    """Empty, without header, ragged or cut off: refused by name, not read in part."""
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with raises(ConfigError, code) as caught:
        read_rows(path)
    assert str(path) in (caught.value.where or "")


@given(st.text(alphabet='abc,"\n\r\x00;', max_size=60), st.booleans())
def test_reader_accepts_or_refuses_any_text(
    tmp_path_factory: pytest.TempPathFactory, text: str, headed: bool
) -> None:
    """Any text below, or instead of, a header is read or refused, never a crash."""
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    header = ",".join(COLUMNS["gpu"]) + "\n" if headed else ""
    path.write_text(header + text, newline="")
    with suppress(ConfigError):
        assert read_rows(path)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """A path without a file, and bytes that are not UTF-8."""
    path = tmp_path / "rows.csv"
    with raises(ConfigError, "file-not-readable"):
        read_rows(path)
    path.write_bytes(b"row_id,\xff\xfe")
    with raises(ConfigError, "file-not-csv"):
        read_rows(path)
