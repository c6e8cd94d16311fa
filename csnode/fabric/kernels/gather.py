"""Kernels that pick by index: embedding lookup, and the loss of a class per token."""

from __future__ import annotations

import numpy as np

from csnode.fabric.collectives import paths
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Gather, Vector
from csnode.fabric.kernels.softmax import add_shifted
from csnode.fabric.kernels.sums import COLOURS, add_sum, add_sum_for_all
from csnode.fabric.kernels.tiles import Result, join, split
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.simulator import run


def embedding(fabric: Fabric, table: Array, tokens: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """``table[tokens]``: table [rows, features] along the columns, tokens [n] down the rows.

    A PE holds its features of all rows of the table and copies one row for each of its tokens.
    """
    height, width = tokens.size // fabric.rows, table.shape[1] // fabric.columns
    program = Program(fabric)
    rows = program.array("table", table.shape[0] * width, dtype)
    index = program.array("index", height)
    out = program.array("out", height * width, dtype)
    program.do(EVERYWHERE, Gather(out.whole, rows.whole, index.whole))
    data = {
        "table": split(table, 1, fabric.columns),
        "index": tokens.reshape(fabric.rows, 1, height),
    }
    outcome = run(program, data)
    return Result(join(outcome.read("out"), height, width), outcome)


def cross_entropy(
    fabric: Fabric, logits: Array, classes: Array, dtype: Dtype = Dtype.FP32
) -> Result:
    """Mean over tokens of ``log(sum(exp(logits))) - logits[class]``; logits [tokens, classes].

    The logarithm of the softmax along the rows; then the PE that holds the class of a token picks
    it, and the picked are summed in fp32 along rows and down column 0. ``values`` is one number.
    """
    height, width = logits.shape[0] // fabric.rows, logits.shape[1] // fabric.columns
    program = Program(fabric)
    tile = program.array("x", height * width, dtype, bank=0)
    exponentials = program.array("e", height * width, dtype, bank=2)
    total = program.array("total", height, Dtype.FP32, bank=4)
    index, picked = program.array("index", height), program.array("picked", height, dtype)
    loss = program.array("loss", 1)
    add_shifted(program, tile, height, colour=0)
    x, line = tile.whole, paths.rows(fabric)
    program.do(
        EVERYWHERE,
        Vector("exp", exponentials.whole, x),
        Vector("sum", total.whole, exponentials.whole),
    )
    add_sum_for_all(program, line, total.whole, COLOURS)
    program.do(EVERYWHERE, Vector("log", total.whole, total.whole))
    program.do(EVERYWHERE, Vector("subtract", x, x, total.whole))
    program.do(EVERYWHERE, Gather(picked.whole, x, index.whole))
    program.do(EVERYWHERE, Vector("sum", loss.whole, picked.whole))
    add_sum(program, line, loss.whole, 2 * COLOURS)
    add_sum(program, paths.first_column(fabric), loss.whole, 3 * COLOURS)
    data = {
        "x": split(logits, fabric.rows, fabric.columns, transposed=True),
        "index": _places(fabric, classes, height, width),
    }
    outcome = run(program, data)
    return Result(-outcome.read("loss")[0, 0] / classes.size, outcome)


def _places(fabric: Fabric, classes: Array, height: int, width: int) -> Array:
    """[rows, columns, height]: where each token's class lies in the tile of a PE, or -1."""
    of_row = classes.reshape(fabric.rows, 1, height)
    local = of_row - width * np.arange(fabric.columns)[None, :, None]
    place = local * height + np.arange(height)
    return np.where((local >= 0) & (local < width), place, -1)
