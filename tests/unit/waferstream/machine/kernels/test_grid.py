"""Tiles and rectangles of a grid, and sums of cycles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import override
from waferstream.machine.hardware.fabric import WSE2
from waferstream.machine.kernels import Cycles, Grid

SMALL = override(WSE2, columns=4, rows=4)


sizes = st.integers(1, 4000)


def test_grid_refuses_hidden_pes_out_of_range() -> None:
    """The hidden dimension cannot be spread over more columns than there are."""
    with raises(ConfigError, "hidden-pes-out-of-range"):
        Grid(SMALL, 5)
    with raises(ConfigError, "hidden-pes-out-of-range"):
        Grid(SMALL, 0)


@given(parts=st.integers(1, 3000), rows=sizes, columns=sizes)
def test_rectangles_fit_the_grid_and_hold_all_parts(parts: int, rows: int, columns: int) -> None:
    """All parts of a round fit side by side; sides are no longer than the work; no part is lost."""
    grid = Grid(override(WSE2, columns=20, rows=30), 20)
    high, wide, rounds = grid.rectangles(parts, rows, columns)
    assert 1 <= high <= rows
    assert 1 <= wide <= columns
    assert min(parts, grid.num_pes) * high * wide <= grid.num_pes
    assert rounds * grid.num_pes >= parts


@pytest.mark.parametrize(
    ("rows", "columns", "sides"),
    [(100, 100, (10, 10)), (400, 100, (20, 5)), (300, 100, (20, 5)), (100, 400, (5, 20))],
)
def test_rectangles_are_shaped_like_the_work(
    rows: int, columns: int, sides: tuple[int, int]
) -> None:
    """Of a hundred PEs, so that a PE's tile is nearly square."""
    grid = Grid(override(WSE2, columns=20, rows=30), 20)
    assert grid.rectangles(6, rows, columns) == (*sides, 1)


def test_cycles_add_up() -> None:
    """Causes are exclusive; waiting for the fabric extends to a bound and never shortens."""
    cycles = Cycles(compute=3, setup=2)
    assert (cycles + Cycles(memory=1)).total_cycles == 6
    assert (cycles * 2).total_cycles == 10
    assert cycles.at_least(9) == Cycles(compute=3, setup=2, fabric=4)
    assert cycles.at_least(1) == cycles
