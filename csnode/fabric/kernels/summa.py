"""SUMMA: a product of two resident matrices (van de Geijn and Watts 1997)."""

from __future__ import annotations

from csnode.fabric.collectives import paths
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Gemv
from csnode.fabric.kernels.moving_operand import MovingOperand
from csnode.fabric.kernels.tiles import Result, join, split
from csnode.fabric.memory import SramArray
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.simulator import run
from wsc.core.errors import ApplianceCompilationError


def summa(fabric: Fabric, a: Array, b: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """``a @ b`` on a rectangle of PEs, each of which holds a tile of a, of b, and of the result.

    Each step broadcasts a slice of a's tiles in one column along the rows and a slice of b's in one
    row down the columns, into one of two buffers, while the slices of the step before are
    multiplied; along the longer side a tile is one slice. The longer side of a result's tile is
    the vector of the multiply-adds. Sums are fp32. Raises ApplianceCompilationError when a matrix
    does not divide among the PEs, or one side of the rectangle not by the other.
    """
    high, wide = fabric.rows, fabric.columns
    steps = _steps(fabric)
    rows, inner, columns = a.shape[0] // high, a.shape[1] // steps, b.shape[1] // wide
    transposed = rows > columns
    program = Program(fabric)
    left = program.array("a", rows * inner * (steps // wide), dtype, bank=0)
    right = program.array("b", inner * columns * (steps // high), dtype, bank=2)
    sums = program.array("c", rows * columns, Dtype.FP32, bank=4)
    vectors = columns if transposed else rows
    add_summa(program, left, right, sums, vectors, transposed=transposed)
    data = {
        "a": split(a, high, steps, transposed=transposed).reshape(high, wide, -1),
        "b": _down(split(b, steps, wide, transposed=transposed), high),
    }
    outcome = run(program, data)
    return Result(join(outcome.read("c"), rows, columns, transposed=transposed), outcome)


def _steps(fabric: Fabric) -> int:
    """As many slices as the longer side has PEs."""
    short, steps = sorted((fabric.rows, fabric.columns))
    if steps % short:
        raise ApplianceCompilationError(
            "SUMMA does not divide a rectangle of PEs",
            value=f"{fabric.rows} x {fabric.columns}",
            rule="one side is a multiple of the other",
        )
    return steps


def _down(tiles: Array, rows: int) -> Array:
    """[slices, columns, n] to [rows, columns, slices of a row x n]."""
    slices, columns, size = tiles.shape
    parts = tiles.reshape(rows, slices // rows, columns, size).transpose(0, 2, 1, 3)
    return parts.reshape(rows, columns, -1)


def add_summa(
    program: Program,
    left: SramArray,
    right: SramArray,
    sums: SramArray,
    vectors: int,
    *,
    transposed: bool = False,
    colour: int = 0,
) -> None:
    """Multiply tiles of ``left``, which move along rows, and of ``right``, down columns.

    ``left`` is [vectors, inner] and ``right`` [inner, columns]; ``transposed``, for sums that lie
    column by column, ``left`` is [inner, rows] and ``right`` [vectors, inner]; of a PE's slices
    each. Two colours.
    """
    steps = _steps(program.fabric)
    fabric = program.fabric
    along = MovingOperand.in_parts(program, paths.rows(fabric), left, 0, steps // fabric.columns)
    down = MovingOperand.in_parts(program, paths.columns(fabric), right, 1, steps // fabric.rows)
    along.add(program, colour)
    down.add(program, colour + 1)
    for step in range(steps):
        west, north = along.at(step), down.at(step)
        matrix, vector = (west, north) if transposed else (north, west)
        product = Gemv(matrix, vector, sums.whole, vectors)
        releases = (*along.release(step), *down.release(step))
        program.do(EVERYWHERE, along.wait, down.wait, product, *releases)
