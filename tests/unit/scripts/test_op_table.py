"""The page of ops has the whole table, and the table says what is true."""

from __future__ import annotations

import pytest

from scripts.op_table import Row, page, rows
from waferstream.compiler.ops import KIND_OF, REMEDIES
from waferstream.machine.kernels.op_costs import COST_FUNCTIONS


def test_page_has_every_row_and_remedy() -> None:
    text = page()
    assert all(f"| `{row.name}` | {row.kind} |" in text for row in rows())
    assert all(f"| `{name}` | {remedy} |" in text for name, remedy in REMEDIES.items())


def test_rows_have_every_op_that_the_compiler_lists() -> None:
    """An in-place variant shares the row of its op."""
    names = {row.name for row in rows()}
    assert {name.removesuffix("_") for name in KIND_OF} <= names


def test_every_row_has_a_cost() -> None:
    """No op runs for nothing."""
    assert {row.kind for row in rows()} <= COST_FUNCTIONS.keys()


@pytest.mark.parametrize(
    "row",
    [
        Row("mm", "matmul", True),
        Row("convolution", "convolution", True),
        Row("convolution_backward", "convolution", False),
        Row("argmax", "reduction", False),
        Row("gt", "elementwise", False),
        Row("relu", "elementwise", True),
        Row("transpose", "view", True),
        Row("rand", "random", False),
    ],
    ids=lambda row: row.name,
)
def test_row_of_an_op(row: Row) -> None:
    """Kind and gradient."""
    assert row in rows()
