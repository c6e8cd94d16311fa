"""Build programs that consist of one collective, for benchmarks and for checks of closed forms.

Each builder makes an array ``"x"`` of ``length`` elements in every PE and reduces or broadcasts it.
The result lies in row 0, column 0 (in column 0 of every row for collectives on rows), or everywhere
for all-reduces. ``Outcome.cycles`` leaves out ``program_start_cycles``.
"""

from __future__ import annotations

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.broadcast import add_broadcast, add_grid_broadcast
from csnode.fabric.collectives.reduce import add_reduce
from csnode.fabric.collectives.ring import add_ring_all_reduce
from csnode.fabric.collectives.trees import Tree, chain
from csnode.fabric.dtypes import Dtype
from csnode.fabric.memory import SramArray
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric

_REDUCE_ROWS, _REDUCE_COLUMN, _BROADCAST, _RING = (0, 1), (2, 3), 4, (0, 1, 2, 3)


def broadcast(fabric: Fabric, length: int, dtype: Dtype = Dtype.FP32) -> Program:
    """Return a broadcast from column 0 along every row."""
    program, x = _with_array(fabric, length, dtype)
    add_broadcast(program, paths.rows(fabric), x.whole, _BROADCAST)
    return program


def broadcast_2d(fabric: Fabric, length: int, dtype: Dtype = Dtype.FP32) -> Program:
    """Return a broadcast from row 0, column 0 to all PEs."""
    program, x = _with_array(fabric, length, dtype)
    add_grid_broadcast(program, x.whole, _BROADCAST)
    return program


def reduce(
    fabric: Fabric,
    tree: Tree,
    length: int,
    dtype: Dtype = Dtype.FP32,
    restart_cycles: tuple[int, int] = (0, 0),
) -> Program:
    """Return a reduce along every row into column 0, by a tree as wide as the fabric.

    ``restart_cycles`` as in ``do_reduce``.
    """
    program, x = _with_array(fabric, length, dtype)
    add_reduce(
        program,
        paths.rows(fabric),
        tree,
        x.whole,
        _REDUCE_ROWS,
        restart_cycles=restart_cycles,
    )
    return program


def reduce_2d(
    fabric: Fabric, row_tree: Tree, column_tree: Tree, length: int, dtype: Dtype = Dtype.FP32
) -> Program:
    """Return an X-Y reduce: along every row, then along column 0."""
    program, x = _with_array(fabric, length, dtype)
    add_reduce(program, paths.rows(fabric), row_tree, x.whole, _REDUCE_ROWS)
    add_reduce(program, paths.first_column(fabric), column_tree, x.whole, _REDUCE_COLUMN)
    return program


def snake_reduce(fabric: Fabric, length: int, dtype: Dtype = Dtype.FP32) -> Program:
    """Return a reduce by a chain through all PEs, row by row, back and forth."""
    program, x = _with_array(fabric, length, dtype)
    add_reduce(program, paths.snake(fabric), chain(fabric.num_pes), x.whole, _REDUCE_ROWS)
    return program


def all_reduce(fabric: Fabric, tree: Tree, length: int, dtype: Dtype = Dtype.FP32) -> Program:
    """Return an all-reduce along every row: a reduce by a tree, then a broadcast."""
    program = reduce(fabric, tree, length, dtype)
    x = program.layout.arrays["x"]
    add_broadcast(program, paths.rows(fabric), x.whole, _BROADCAST)
    return program


def all_reduce_2d(
    fabric: Fabric, row_tree: Tree, column_tree: Tree, length: int, dtype: Dtype = Dtype.FP32
) -> Program:
    """Return an X-Y reduce, followed by a broadcast over the grid."""
    program = reduce_2d(fabric, row_tree, column_tree, length, dtype)
    add_grid_broadcast(program, program.layout.arrays["x"].whole, _BROADCAST)
    return program


def ring_all_reduce(fabric: Fabric, length: int, dtype: Dtype = Dtype.FP32) -> Program:
    """Return an all-reduce along every row, on a ring folded into it."""
    program, x = _with_array(fabric, length, dtype)
    add_ring_all_reduce(program, paths.rows(fabric), x, _RING)
    return program


def _with_array(fabric: Fabric, length: int, dtype: Dtype) -> tuple[Program, SramArray]:
    program = Program(fabric)
    return program, program.array("x", length, dtype)
