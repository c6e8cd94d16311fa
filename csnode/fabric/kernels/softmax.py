"""Softmax over features that are spread along a row of PEs."""

from __future__ import annotations

from csnode.fabric.collectives import paths
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Vector
from csnode.fabric.kernels.sums import COLOURS, add_sum_for_all
from csnode.fabric.kernels.tiles import Result, join, split
from csnode.fabric.memory import SramArray
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.simulator import run


def softmax(fabric: Fabric, x: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """``exp(x - max) / sum`` of each row of x [tokens, features], tokens down the columns.

    A PE keeps its tile feature by feature, so that the tokens of a vector op lie side by side.
    Maxima and sums are fp32, each all-reduced along the row.
    """
    height, width = x.shape[0] // fabric.rows, x.shape[1] // fabric.columns
    program = Program(fabric)
    tile = program.array("x", height * width, dtype, bank=0)
    add_softmax(program, tile, height, colour=0)
    outcome = run(program, {"x": split(x, fabric.rows, fabric.columns, transposed=True)})
    return Result(join(outcome.read("x"), height, width, transposed=True), outcome)


def add_softmax(program: Program, tile: SramArray, tokens: int, colour: int) -> None:
    """Softmax in place of a tile [features, tokens] in every PE, over its row; six colours."""
    total = program.array("total", tokens, Dtype.FP32, bank=4)
    add_shifted(program, tile, tokens, colour)
    x = tile.whole
    program.do(EVERYWHERE, Vector("exp", x, x), Vector("sum", total.whole, x))
    add_sum_for_all(program, paths.rows(program.fabric), total.whole, colour + COLOURS)
    program.do(EVERYWHERE, Vector("reciprocal", total.whole, total.whole))
    program.do(EVERYWHERE, Vector("multiply", x, x, total.whole))


def add_shifted(program: Program, tile: SramArray, tokens: int, colour: int) -> None:
    """Subtract from each token its maximum over the row; three colours."""
    top, x = program.array("top", tokens, Dtype.FP32, bank=2), tile.whole
    program.do(EVERYWHERE, Vector("max", top.whole, x))
    add_sum_for_all(program, paths.rows(program.fabric), top.whole, colour, "maximum")
    program.do(EVERYWHERE, Vector("subtract", x, x, top.whole))
