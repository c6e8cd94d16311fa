"""Columns of a row are converted, and its description holds no result."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.errors import raises
from tests.support.timing.reference_rows import row, write_rows
from validation.rows.reader import read_rows
from validation.rows.row import COLUMNS, RESULTS, CannotPredict, Kind, Row, letters_of
from waferstream.core.errors import ConfigError


def _read_one(folder: Path, kind: Kind = "kernels", **fields: str) -> Row:
    (read,) = read_rows(write_rows(folder / "rows.csv", row(kind=kind, **fields)))
    return read


def test_columns_are_converted(tmp_path: Path) -> None:
    """Numbers are numbers, and empty columns are None or an empty text."""
    read = _read_one(tmp_path, num_pes="512", density_pct="2.5", use="calibration")
    assert (read.integer("num_pes"), read.number("density_pct")) == (512, 2.5)
    assert read.number("M") is read.integer("M") is None
    assert (read.text("M"), read.value, read.unit) == ("", 100.0, "cycles")
    assert (read.use, read.evidence, read.line) == ("calibration", "simulator", 2)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("about 4", "column-not-a-number"),
        ("nan", "column-not-a-number"),
        ("2.5", "column-not-a-count"),
        ("0", "column-not-a-count"),
        ("-8", "column-not-a-count"),
    ],
)
def test_columns_that_are_no_counts_are_refused(tmp_path: Path, text: str, code: str) -> None:
    """The error names file, row and field."""
    read = _read_one(tmp_path, num_pes=text)
    with raises(ConfigError, code) as caught:
        read.integer("num_pes")
    assert (caught.value.where or "").endswith("rows.csv, line 2, row K0001, field num_pes")


def test_required_columns_raise_the_reason_when_empty(tmp_path: Path) -> None:
    """A prediction that needs them skips the row."""
    read = _read_one(tmp_path, num_pes="8", dtype="fp16")
    assert (read.count("num_pes"), read.stated("dtype")) == (8, "fp16")
    assert read.choice("dtype", {"fp16": 2}) == 2
    with pytest.raises(CannotPredict) as empty:
        read.count("M")
    with pytest.raises(CannotPredict) as unstated:
        read.stated("params")
    with pytest.raises(CannotPredict) as unknown:
        read.choice("dtype", {"fp32": 4})
    codes = [reason.value.code for reason in (empty, unstated, unknown)]
    assert codes == ["column-empty", "column-empty", "column-value-unknown"]


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from(sorted(RESULTS - {"value"})), st.text(max_size=9)))
def test_described_rows_hold_no_result(
    tmp_path_factory: pytest.TempPathFactory, results: dict[str, str]
) -> None:
    """A prediction gets the same row for any values in the result columns."""
    folder = tmp_path_factory.mktemp("rows")
    for kind, columns in COLUMNS.items():
        changed = {column: text for column, text in results.items() if column in columns}
        plain = _read_one(folder, kind)
        measured = _read_one(folder, kind, value="7", **changed)
        assert measured.described() == plain.described()


def test_described_rows_hold_no_result_in_brackets(tmp_path: Path) -> None:
    """Remarks such as "cycles (0.868 words/cycle)" and "programming (85-136)" quote results."""
    described = _read_one(
        tmp_path,
        unit="cycles (0.868 words/cycle)",
        workload="device programming (85-136)",
        algorithm="chain (two colours)",
    ).described()
    assert (described.unit, described.text("unit")) == ("cycles", "cycles")
    assert described.text("workload") == "device programming"
    assert described.text("algorithm") == "chain (two colours)"


def test_label_leaves_out_empty_columns(tmp_path: Path) -> None:
    """Machine, workload and sizes in one line."""
    kernel = _read_one(tmp_path, system="CS-2", algorithm="chain", num_pes="512")
    assert kernel.label == "CS-2: 1D reduce chain P=512"
    gpu = _read_one(tmp_path, "gpu", gpu="H100", n_gpus="8", workload="MPT 7b")
    assert gpu.label == "H100 x 8: MPT 7b"


def test_letters_of_ignores_case_and_punctuation() -> None:
    """Papers and repositories spell names differently."""
    assert letters_of("Llama 3.1-8B") == letters_of("llama3.1 8b") == "llama318b"
