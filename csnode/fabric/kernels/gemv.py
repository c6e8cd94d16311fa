"""A matrix-vector product with the matrix at rest on a rectangle of PEs."""

from __future__ import annotations

from csnode.fabric.collectives import paths
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Gemv
from csnode.fabric.kernels.sums import add_sum
from csnode.fabric.kernels.tiles import Result, split
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.simulator import run


def gemv(fabric: Fabric, matrix: Array, vector: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """``matrix @ vector``: matrix [outputs, inputs], outputs down the columns, inputs along rows.

    Each PE holds its part of the vector; sums are fp32 and end in column 0.
    """
    rows, columns = fabric.rows, fabric.columns
    height, width = matrix.shape[0] // rows, matrix.shape[1] // columns
    program = Program(fabric)
    tile = program.array("a", height * width, dtype, bank=0)
    part = program.array("x", width, dtype, bank=2)
    sums = program.array("y", height, Dtype.FP32, bank=4)
    program.do(EVERYWHERE, Gemv(tile.whole, part.whole, sums.whole))
    add_sum(program, paths.rows(fabric), sums.whole, colour=0)
    data = {
        "a": split(matrix, rows, columns, transposed=True),
        "x": vector.reshape(1, columns, width),
    }
    outcome = run(program, data)
    return Result(outcome.read("y")[:, 0].reshape(-1), outcome)
