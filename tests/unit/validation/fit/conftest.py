"""Rows of a training file, as the fits read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.timing.reference_rows import row, write_rows
from validation.rows.reader import read_rows
from validation.rows.row import Row

Read = Callable[..., tuple[Row, ...]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read rows of a training file, each given by its columns."""

    def read(*columns: dict[str, str]) -> tuple[Row, ...]:
        rows = (row(f"T{i}", "training", **one) for i, one in enumerate(columns))
        return read_rows(write_rows(tmp_path / "rows.csv", *rows))

    return read
