"""The gradient of a weight: a product of resident activations and their gradients."""

from __future__ import annotations

from csnode.fabric.collectives import paths
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Gemv
from csnode.fabric.kernels.moving_operand import MovingOperand
from csnode.fabric.kernels.sums import add_sum
from csnode.fabric.kernels.tiles import Result, split
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.simulator import run
from timing.kernels.resident import gradient_block


def weight_gradient(fabric: Fabric, x: Array, dy: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """``x.T @ dy``: x [tokens, inputs] and dy [tokens, outputs] rest, tokens down the columns.

    The PEs of a row broadcast their parts of dy in turn; each PE multiplies some of them, side by
    side, with its part of x while the next ones are on their way. Gradients are fp32, summed down
    the columns into row 0.
    """
    rows, columns = fabric.rows, fabric.columns
    height, features, width = x.shape[0] // rows, x.shape[1] // columns, dy.shape[1] // columns
    program = Program(fabric)
    mine = program.array("dy", height * width, dtype, bank=0)
    at_rest = program.array("x", features * height, dtype, bank=2)
    gradients = program.array("dw", columns * features * width, Dtype.FP32, bank=4)
    tile = (height, features, width)
    block = gradient_block(fabric.spec, columns, tile, dtype.torch_name, even=True)
    moving = MovingOperand.in_blocks(program, paths.rows(fabric), mine, 0, height, block)
    moving.add(program, colour=0)
    for step in range(moving.steps):
        size = features * block * width
        sums = gradients[step * size : (step + 1) * size]
        product = Gemv(moving.at(step), at_rest.whole, sums, vectors=features)
        program.do(EVERYWHERE, moving.wait, product, *moving.release(step))
    add_sum(program, paths.columns(fabric), gradients.whole, colour=1)
    data = {"x": split(x, rows, columns, transposed=True), "dy": split(dy, rows, columns)}
    outcome = run(program, data)
    blocks = outcome.read("dw")[0].reshape(columns, moving.steps, features, block * width)
    return Result(blocks.transpose(0, 2, 1, 3).reshape(x.shape[1], dy.shape[1]), outcome)
