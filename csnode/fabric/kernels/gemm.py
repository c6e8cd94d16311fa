"""The gradient of a weight: a product of resident activations and their gradients."""

from __future__ import annotations

import numpy as np

from csnode.fabric.collectives import paths
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Gemv
from csnode.fabric.kernels.sums import add_sum
from csnode.fabric.kernels.tiles import Result, split
from csnode.fabric.kernels.turns import Turns
from csnode.fabric.program import Program
from csnode.fabric.simulator import run


def weight_gradient(fabric: Fabric, x: Array, dy: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """``x.T @ dy``: x [tokens, inputs] and dy [tokens, outputs] rest, tokens down the columns.

    The PEs of a row broadcast their part of dy in turn; each PE multiplies it with its part of x
    while the next one is on its way. Gradients are fp32, summed down the columns into row 0.
    """
    rows, columns = fabric.rows, fabric.columns
    height, features, width = x.shape[0] // rows, x.shape[1] // columns, dy.shape[1] // columns
    program = Program(fabric)
    mine = program.array("dy", height * width, dtype, bank=0)
    at_rest = program.array("x", features * height, dtype, bank=2)
    gradients = program.array("dw", columns * features * width, Dtype.FP32, bank=4)
    turns = Turns.along_rows(program, mine, number=0)
    turns.add(program, colour=0)
    for root in range(columns):
        block = gradients[root * features * width : (root + 1) * features * width]
        for part, matrix in turns.operands(root):
            product = Gemv(matrix, at_rest.whole, block, vectors=features)
            program.do(np.s_[:, part], turns.wait, product, *turns.release(root))
    add_sum(program, paths.columns(fabric), gradients.whole, colour=1)
    data = {"x": split(x, rows, columns, transposed=True), "dy": split(dy, rows, columns)}
    outcome = run(program, data)
    blocks = outcome.read("dw")[0].reshape(columns, columns, features, width)
    return Result(blocks.transpose(0, 2, 1, 3).reshape(x.shape[1], dy.shape[1]), outcome)
