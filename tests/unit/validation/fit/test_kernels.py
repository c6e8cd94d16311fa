"""Fits of kernels: rows that they need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.errors import raises
from tests.support.timing.reference_rows import row, write_rows
from validation.fit.kernels import fit_gemm, fit_gemv
from validation.rows.reader import read_rows
from validation.rows.row import Row
from waferstream.core.errors import ConfigError


def _kernel_rows(tmp_path: Path, *columns: dict[str, str]) -> Sequence[Row]:
    common = {"system": "WSE-2", "dtype": "fp32", "use": "calibration"}
    rows = (row(f"K{i}", **common, **one) for i, one in enumerate(columns))
    return read_rows(write_rows(tmp_path / "rows.csv", *rows))


def test_fit_gemv_needs_two_sizes(tmp_path: Path) -> None:
    """One size gives no line."""
    one = {"workload": "single-tile matvec y=Ax", "unit": "cycles per matvec", "M": "20", "K": "20"}
    with raises(ConfigError, "too-few-sizes"):
        fit_gemv(_kernel_rows(tmp_path, one, one))


def test_fit_gemm_needs_a_product() -> None:
    """Other rows of the family do not run the fitted program."""
    with raises(ConfigError, "no-calibration-row"):
        fit_gemm([])
