"""SUMMA: a product of two resident matrices (van de Geijn and Watts 1997)."""

from __future__ import annotations

from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Gemv
from csnode.fabric.kernels.tiles import Result, join, split
from csnode.fabric.kernels.turns import Turns
from csnode.fabric.memory import SramArray
from csnode.fabric.program import Program
from csnode.fabric.simulator import run
from wsc.core.errors import ApplianceCompilationError

COLOURS = 2


def summa(fabric: Fabric, a: Array, b: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """``a @ b`` on a square of PEs, each of which holds a tile of a, of b, and of the result.

    Step k broadcasts the tiles of a in column k along the rows and those of b in row k down the
    columns, into one of two buffers, while the tiles of step k - 1 are multiplied. Sums are fp32.
    Raises ApplianceCompilationError when the fabric is not square or a matrix does not divide.
    """
    side = square_side(fabric)
    rows, inner, columns = a.shape[0] // side, a.shape[1] // side, b.shape[1] // side
    program = Program(fabric)
    left = program.array("a", rows * inner, dtype, bank=0)
    right = program.array("b", inner * columns, dtype, bank=2)
    sums = program.array("c", rows * columns, Dtype.FP32, bank=4)
    add_summa(program, left, right, sums, vectors=rows)
    outcome = run(program, {"a": split(a, side, side), "b": split(b, side, side)})
    return Result(join(outcome.read("c"), rows, columns), outcome)


def square_side(fabric: Fabric) -> int:
    """Rows of a square; ApplianceCompilationError for another shape."""
    if fabric.rows != fabric.columns:
        raise ApplianceCompilationError(
            "SUMMA needs a square of PEs",
            value=f"{fabric.rows} x {fabric.columns}",
            rule="as many rows as columns",
        )
    return fabric.rows


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
    column by column, ``left`` is [inner, rows] and ``right`` [vectors, inner]. Two colours.
    """
    along = Turns.along_rows(program, left, number=0)
    down = Turns.down_columns(program, right, number=1)
    along.add(program, colour)
    down.add(program, colour + 1)
    for step in range(program.fabric.rows):
        releases = (*along.release(step), *down.release(step))
        for columns, west in along.operands(step):
            for rows, north in down.operands(step):
                matrix, vector = (west, north) if transposed else (north, west)
                product = Gemv(matrix, vector, sums.whole, vectors)
                program.do((rows, columns), along.wait, down.wait, product, *releases)
