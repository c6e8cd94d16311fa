"""Gradient of a weight of which a part is masked: only the gradients of its non-zeros.

In the backward pass the weights stream a second time, for the gradients of their inputs. Row 0 of
the fabric is the edge at which they enter, each in the column that holds dy of its output; the
weights of one input come together, with a control wavelet behind them (``kernels.streaming``). The
PEs of a row broadcast their parts of x in turn, as in ``kernels.resident``::

    row 0    weights of outputs 0-2         weights of outputs 3-5          colour 0, southward
    row 1    dy[tokens 0, outputs 0-2]      dy[tokens 0, outputs 3-5]       x of inputs 0-1, 2-3
    row 2    dy[tokens 1, outputs 0-2]      dy[tokens 1, outputs 3-5]       along row 2

Each arriving weight names its output and triggers a dot product of that output's dy and the input's
x over the local tokens: the gradient of this weight. Masked weights do not arrive, so theirs is not
computed. The gradients of a column lie in the order in which its weights came, equal on all its
PEs, and are summed up the column.
"""

from __future__ import annotations

import numpy as np

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.reduce import add_sum
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.instructions import Dots
from csnode.fabric.kernels.resident import MovingOperand
from csnode.fabric.kernels.streaming import (
    TOKENS,
    WEIGHTS,
    WeightStream,
    add_weights,
    route_weights,
    words_of_weights,
)
from csnode.fabric.kernels.tiles import Result, split
from csnode.fabric.memory import SramArray
from csnode.fabric.program import Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from waferstream.core.errors import ApplianceCompilationError

_BUS, _SUMS = 1, 2


def masked_weight_gradient(
    fabric: Fabric, dy: Array, x: Array, mask: Array, dtype: Dtype = Dtype.FP16
) -> Result:
    """Compute ``dy.T @ x`` where ``mask`` is true, and zeros elsewhere.

    Gradients are fp32.

    Args:
        fabric: One row of PEs for weights, the others for tokens.
        dy: Resident operand [tokens, outputs].
        x: Operand [tokens, inputs] whose parts move along the rows of PEs.
        mask: bool [outputs, inputs], true for weights that arrive.
        dtype: Format of both operands, of 16 bits: weights of fp32 carry no index.

    Raises:
        ApplianceCompilationError: The mask does not fit, the format has no index, or a matrix does
            not divide among the PEs.
    """
    rows, columns = fabric.rows - 1, fabric.columns
    _check(rows, dy, x, mask, dtype)
    height, features, width = len(dy) // rows, len(mask) // columns, x.shape[1] // columns
    program = Program(fabric)
    route_weights(program)
    data = {
        name: np.pad(split(matrix, rows, columns, transposed=True), ((1, 0), (0, 0), (0, 0)))
        for name, matrix in (("x", x), ("dy", dy))
    }
    moving = program.array("x", width * height, dtype, bank=0)
    resident = program.array("dy", features * height, dtype, bank=2)
    inputs = np.arange(x.shape[1])
    stream = WeightStream.in_order(
        mask.T.astype(float), features, columns, dtype, inputs // width, inputs % width
    )
    entering = program.array("weights", stream.words.shape[1])
    data[entering.name] = words_of_weights(fabric, stream)
    kept = mask.T.reshape(len(inputs), columns, features).sum(axis=2)  # [inputs, columns]
    longest = max(1, int(kept.sum(axis=0).max()))
    # One element more, since a slice behind the last gradient is not empty.
    gradients = program.array("dw", longest + 1, Dtype.FP32, bank=4)
    add_weights(program, stream, entering, continuous=True)
    _add_products(program, moving, resident, gradients, kept)
    down = paths.columns(fabric)
    below = paths.Path(down.pes[:, 1:], down.columns, down.toward[1:], down.away[1:])
    add_sum(program, below, gradients[:longest], _SUMS)
    outcome = run(program, data)
    return Result(_placed(outcome.read("dw")[1], mask, columns), outcome)


def _check(rows: int, dy: Array, x: Array, mask: Array, dtype: Dtype) -> None:
    fits = mask.shape == (dy.shape[1], x.shape[1]) and len(dy) == len(x)
    if not fits or rows < 1 or dtype is Dtype.FP32:
        raise ApplianceCompilationError(
            "a mask must fit both operands, of 16 bits, and rows of PEs be left for tokens",
            code="masked-gradient-operands",
            value=f"mask {mask.shape}, operands {dy.shape} and {x.shape} of {dtype.name}, "
            f"{rows} rows for tokens",
            rule="mask [outputs, inputs] of dy [tokens, outputs] and x [tokens, inputs]",
        )


def _add_products(
    program: Program, x: SramArray, resident: SramArray, gradients: SramArray, kept: Array
) -> None:
    """Multiply the part of x that is here by dy, weight by weight, while the next part moves."""
    whole = paths.rows(program.fabric)
    line = paths.Path(whole.pes[1:], whole.columns, whole.toward, whole.away)
    moving = MovingOperand.in_parts(program, line, x, 0, 1)
    moving.add(program, _BUS)
    width = len(kept) // line.length
    height = x.length // width
    starts = np.concatenate([np.zeros_like(kept[:1]), np.cumsum(kept, axis=0)])
    for step in range(moving.steps):
        program.do(TOKENS, moving.wait)
        part = moving.at(step).array
        for slot in range(width):
            vector = part[slot * height : (slot + 1) * height]
            first = starts[step * width + slot]
            for start in np.unique(first):
                dots = Dots(WEIGHTS, resident.whole, vector, gradients[int(start) :])
                program.do((np.s_[1:], np.nonzero(first == start)[0]), dots)
        program.do(TOKENS, *moving.release(step))


def _placed(gradients: Array, mask: Array, columns: int) -> Array:
    """Return gradients [columns, order of arrival] at the places of their weights."""
    values = np.zeros(mask.shape, dtype=np.float32)
    features = len(mask) // columns
    for column, arrived in enumerate(gradients):
        here = slice(column * features, (column + 1) * features)
        inputs, outputs = np.nonzero(mask[here].T)
        values[here][outputs, inputs] = arrived[: len(inputs)]
    return values
