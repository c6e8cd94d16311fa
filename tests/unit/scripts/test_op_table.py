"""The page of ops equals the table, and the table says what is true."""

from __future__ import annotations

import pytest

from scripts.op_table import PAGE, Row, page, rows
from wsc.compiler.ops import KIND_OF


def test_page_equals_the_table() -> None:
    """Run ``python -m scripts.op_table`` after a change of kinds, costs or remedies."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_rows_have_every_op_that_the_compiler_lists() -> None:
    """An in-place variant shares the row of its op."""
    names = {row.name for row in rows()}
    assert {name.removesuffix("_") for name in KIND_OF} <= names


def test_every_row_has_a_cost() -> None:
    """No op runs for nothing."""
    assert all(row.has_cost for row in rows())


@pytest.mark.parametrize(
    "row",
    [
        Row("mm", "matmul", True, True),
        Row("convolution", "convolution", True, True),
        Row("convolution_backward", "convolution", True, False),
        Row("argmax", "reduction", True, False),
        Row("gt", "elementwise", True, False),
        Row("relu", "elementwise", True, True),
        Row("transpose", "view", True, True),
        Row("rand", "random", True, False),
    ],
    ids=lambda row: row.name,
)
def test_row_of_an_op(row: Row) -> None:
    """Kind, cost and gradient."""
    assert row in rows()
