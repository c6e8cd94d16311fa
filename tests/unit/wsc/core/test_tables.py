"""Columns of a table stand below each other."""

import pytest

from wsc.core.tables import aligned


def test_names_stand_at_the_left_and_numbers_at_the_right():
    """Each column is as wide as its widest cell, and no line ends in blanks."""
    assert aligned([("a", "bb"), ("ccc", "d")]) == ["a    bb", "ccc   d"]
    assert aligned([("a", "bb"), ("ccc", "d")], left=()) == ["  a  bb", "ccc   d"]
    assert aligned([("1", "why"), ("22", "")], left=(1,)) == [" 1  why", "22"]


def test_a_row_with_a_cell_too_few_is_refused():
    """It would shift all that follow."""
    with pytest.raises(ValueError, match="zip"):
        aligned([("a", "b"), ("c",)])
