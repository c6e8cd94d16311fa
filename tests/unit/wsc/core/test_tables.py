"""Tables are aligned by columns."""

import pytest

from wsc.core.tables import aligned


def test_aligned_pads_left_and_right_columns() -> None:
    """Each column is as wide as its widest cell, and no line ends in blanks."""
    assert aligned([("a", "bb"), ("ccc", "d")]) == ["a    bb", "ccc   d"]
    assert aligned([("a", "bb"), ("ccc", "d")], left=()) == ["  a  bb", "ccc   d"]
    assert aligned([("1", "why"), ("22", "")], left=(1,)) == [" 1  why", "22"]


def test_aligned_refuses_a_short_row() -> None:
    """It would shift all that follow."""
    with pytest.raises(ValueError, match="zip"):
        aligned([("a", "b"), ("c",)])
