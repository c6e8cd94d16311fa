"""Reference rows are read whole, or refused with file, row, field and rule."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.reference_rows import row, write_rows
from validation.rows.columns import COLUMNS, RESULTS
from validation.rows.row import check_unique, read_rows
from wsc.core.errors import ConfigError


def read_one(tmp_path, **fields):
    (read,) = read_rows(write_rows(tmp_path / "rows.csv", row(**fields)))
    return read


def refused(tmp_path, *rows):
    with pytest.raises(ConfigError) as caught:
        read_rows(write_rows(tmp_path / "rows.csv", *rows))
    assert "rows.csv" in caught.value.where
    return caught.value


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_kind_is_recognised_by_its_columns_in_any_order(tmp_path, kind):
    """A file with its columns turned round is still of the same kind, cell for cell."""
    turned = dict(reversed(row(kind=kind).items()))
    (read,) = read_rows(write_rows(tmp_path / "rows.csv", turned))
    assert read.kind == kind
    assert read.fields == row(kind=kind)


def test_a_row_has_typed_cells(tmp_path):
    """Numbers are numbers, empty cells are None, and the place is told."""
    read = read_one(tmp_path, num_pes="512", density_pct="2.5", use="calibration")
    assert (read.integer("num_pes"), read.number("density_pct")) == (512, 2.5)
    assert read.number("M") is read.integer("M") is None
    assert (read.text("M"), read.value, read.unit) == ("", 100.0, "cycles")
    assert (read.use, read.evidence, read.line) == ("calibration", "simulator", 2)


def test_a_row_is_where_it_begins(tmp_path):
    """A cell with line breaks, or an empty line between, does not shift the line that is told."""
    path = write_rows(tmp_path / "rows.csv", row("K1", notes="a\nb"), row("K2"))
    path.write_text(path.read_text() + "\n" + ",".join(row("K3").values()) + "\n")
    assert [one.line for one in read_rows(path)] == [2, 4, 6]


def test_gpu_rows_are_silicon(tmp_path):
    """GPU files have no evidence column: what they hold was measured."""
    assert read_one(tmp_path, kind="gpu").evidence == "silicon"


@pytest.mark.parametrize("value", ["10-20", "2+2*(n/8)", "nan", "inf"])
def test_a_value_that_is_no_number_stays_text(tmp_path, value):
    """Formulas and ranges are kept to be listed; so are numbers that are not finite."""
    assert read_one(tmp_path, value=value).value == value


@pytest.mark.parametrize("text", ["about 4", "nan", "2.5", "0", "-8"])
def test_a_wrong_cell_is_named(tmp_path, text):
    """A cell that is no count is refused with file, row and field when it is asked for."""
    read = read_one(tmp_path, num_pes=text)
    with pytest.raises(ConfigError) as caught:
        read.integer("num_pes")
    assert caught.value.where.endswith("rows.csv, line 2, row K0001, field num_pes")


def test_columns_of_no_kind_are_left_out(tmp_path):
    """An extra column is harmless: no replay ever sees it."""
    (read,) = read_rows(write_rows(tmp_path / "rows.csv", {**row(), "predicted": "99"}))
    assert "predicted" not in read.fields


def test_a_missing_column_is_named_with_the_one_that_looks_like_it(tmp_path):
    """A misspelt column is the missing one's likely reason."""
    cells = row()
    cells["vector_lenght"] = cells.pop("vector_len")
    error = refused(tmp_path, cells)
    assert "'vector_len' is missing" in error.what
    assert "field vector_len" in error.where
    assert "vector_lenght" in error.remedy


@pytest.mark.parametrize("mark", [";", "\t"])
def test_cells_that_commas_do_not_separate_are_told(tmp_path, mark):
    """As spreadsheets of many countries write them."""
    path = tmp_path / "rows.csv"
    path.write_text(mark.join(row()) + "\n" + mark.join(row().values()) + "\n")
    with pytest.raises(ConfigError, match="separate the cells by commas"):
        read_rows(path)


@pytest.mark.parametrize(
    ("field", "text", "remedy"),
    [
        ("unit", "cylces", "'cycles'"),
        ("unit", "tokens/fortnight", None),
        ("use", "validate", "'validation'"),
        ("evidence", "silicone", "'silicon'"),
        ("unit", "", None),
        ("row_id", " ", None),
        ("value", "", None),
    ],
)
def test_a_row_that_cannot_be_understood_is_refused(tmp_path, field, text, remedy):
    """File, line, field and rule are named, and the nearest known word if one is near."""
    error = refused(tmp_path, row("K0001"), row(**{"row_id": "K0002", field: text}))
    assert "line 3" in error.where
    assert error.where.endswith(f"field {field}")
    assert error.rule
    assert remedy is None or remedy in error.remedy


def test_a_row_id_stands_once(tmp_path):
    """Two rows of one name, in one file or in two, could not be told apart in the report."""
    assert "first at" in refused(tmp_path, row(), row()).where
    path = write_rows(tmp_path / "rows.csv", row())
    with pytest.raises(ConfigError, match="stands twice"):
        check_unique([*read_rows(path), *read_rows(path)])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "missing"),
        (",".join(COLUMNS["gpu"]) + "\n", "no rows"),
        (",".join(COLUMNS["gpu"]) + "\nG0001,a\n", "not as wide"),
        (",".join(COLUMNS["gpu"]) + ",use\n", "stands twice"),
        (",".join(COLUMNS["gpu"]) + '\n"G0001,a\n', "not CSV"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, text, what):
    """Empty, headless, ragged or cut off: refused by name, not read in part."""
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=what) as caught:
        read_rows(path)
    assert "rows.csv" in caught.value.where


@given(st.text(alphabet='abc,"\n\r\x00;', max_size=60), st.booleans())
def test_no_text_breaks_the_reader(tmp_path_factory, text, headed):
    """Whatever stands below, or instead of, a header is read or refused, never a crash."""
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    header = ",".join(COLUMNS["gpu"]) + "\n" if headed else ""
    path.write_text(header + text, newline="")
    with suppress(ConfigError):
        assert read_rows(path)


def test_a_file_that_is_no_text_or_no_file_is_refused(tmp_path):
    """Bytes that are not UTF-8, and a path that leads nowhere."""
    path = tmp_path / "rows.csv"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_rows(path)
    path.write_bytes(b"row_id,\xff\xfe")
    with pytest.raises(ConfigError, match="not CSV"):
        read_rows(path)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(sorted(RESULTS - {"value"})), st.text(max_size=9)))
def test_a_described_row_holds_no_result(tmp_path_factory, results):
    """Whatever stands in a column of results, the row that a replay sees is the same."""
    folder = tmp_path_factory.mktemp("rows")
    for kind, columns in COLUMNS.items():
        cells = {column: text for column, text in results.items() if column in columns}
        (plain,) = read_rows(write_rows(folder / "plain.csv", row(kind=kind)))
        (told,) = read_rows(write_rows(folder / "plain.csv", row(kind=kind, value="7", **cells)))
        assert told.described() == plain.described()


def test_results_in_brackets_are_not_described(tmp_path):
    """Remarks such as "cycles (0.868 words/cycle)" and "programming (85-136)" quote results."""
    seen = read_one(
        tmp_path,
        unit="cycles (0.868 words/cycle)",
        workload="device programming (85-136)",
        algorithm="chain (two colours)",
    ).described()
    assert (seen.unit, seen.text("unit")) == ("cycles", "cycles")
    assert seen.text("workload") == "device programming"
    assert seen.text("algorithm") == "chain (two colours)"
