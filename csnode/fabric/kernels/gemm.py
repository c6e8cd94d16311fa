"""Matrix products with a weight: streamed past resident activations, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from csnode.fabric.collectives import chain, do_reduce, paths, route_reduce
from csnode.fabric.dtypes import Array, Dtype, encode
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Axpy, Gemv, send
from csnode.fabric.kernels.sums import add_sum
from csnode.fabric.kernels.tiles import Result, split
from csnode.fabric.kernels.turns import Turns
from csnode.fabric.program import Program
from csnode.fabric.routing import Port
from csnode.fabric.simulator import run

_WEIGHTS, _SUMS = 0, (1, 2)
_LINE_BYTES = 16
"""The sums of each output begin in the same bank, away from that of the activations."""


def weight_streaming(fabric: Fabric, x: Array, weights: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """``x @ weights``: x [tokens, inputs] rests, weights [inputs, outputs] stream past it.

    Row 0 of the fabric is the edge at which weights enter; the rows below hold the tokens, columns
    the input features. The weights of an output enter together, each in the column of its feature,
    and are multicast down it: 16-bit ones in a wavelet with the index of their feature, so that
    zeros are left out. Each triggers an axpy over the PE's tokens. The control wavelet behind them
    starts the chain of partial sums along the row, to column 0, where all outputs stay. Sums have
    the format of the activations.
    """
    tokens, inputs, outputs = x.shape[0], x.shape[1], weights.shape[1]
    rows, columns = fabric.rows - 1, fabric.columns
    height = tokens // rows
    words, lengths = _edge(weights, columns, dtype)
    program = Program(fabric)
    entering = program.array("weights", words.shape[-1], Dtype.FP32)
    factors = program.array("x", inputs // columns * height, dtype, bank=0)
    pitch = -(-height * dtype.num_bytes // _LINE_BYTES) * _LINE_BYTES // dtype.num_bytes
    sums = program.array("y", outputs * pitch, dtype, bank=4)
    line = _route(program)
    position = np.zeros(columns, dtype=np.int64)
    for output in range(outputs):
        for column in range(columns):
            start = int(position[column])
            position[column] += lengths[output][column]
            row = entering[start : int(position[column])]
            program.do(np.s_[0, column], send(row, _WEIGHTS, ends_row=True))
        here = sums[output * pitch : output * pitch + height]
        program.do(np.s_[1:, :], Axpy(_WEIGHTS, factors.whole, here, indexed=dtype.per_word > 1))
        do_reduce(program, line, chain(columns), here, _SUMS)
    at_rest = np.zeros((fabric.rows, columns, factors.length))
    at_rest[1:] = split(x, rows, columns, transposed=True)
    at_edge = np.zeros((fabric.rows, columns, entering.length), dtype=np.float32)
    at_edge[0] = words
    outcome = run(program, {"weights": at_edge, "x": at_rest})
    y = outcome.read("y")[1:, 0].reshape(rows, outputs, pitch)[:, :, :height]
    return Result(y.transpose(0, 2, 1).reshape(tokens, outputs), outcome)


def _route(program: Program) -> paths.Path:
    """Weights southward from row 0; the lines of partial sums in the rows below."""
    program.route(_WEIGHTS, np.s_[0, :], Port.RAMP, Port.SOUTH)
    program.route(_WEIGHTS, np.s_[1:, :], Port.NORTH, Port.RAMP)
    if program.fabric.rows > 2:
        program.route(_WEIGHTS, np.s_[1:-1, :], Port.NORTH, Port.SOUTH)
    rows = paths.rows(program.fabric)
    line = paths.Path(rows.pes[1:], rows.columns, rows.toward, rows.away)
    route_reduce(program, line, chain(program.fabric.columns), _SUMS)
    return line


def _edge(weights: Array, columns: int, dtype: Dtype) -> tuple[Array, Sequence[Sequence[int]]]:
    """What each column's PE of the edge sends, [columns, words], and how much per output.

    The last word of an output is its control wavelet.
    """
    of_columns = weights.T.reshape(weights.shape[1], columns, -1)
    rows = [[_wavelets(part, dtype) for part in output] for output in of_columns]
    lengths = [[part.size for part in output] for output in rows]
    streams = [np.concatenate(column) for column in zip(*rows, strict=True)]
    words = np.zeros((columns, max(stream.size for stream in streams)), dtype=np.float32)
    for column, stream in enumerate(streams):
        words[column, : stream.size] = stream
    return words, lengths


def _wavelets(weights: Array, dtype: Dtype) -> Array:
    """The bits of one PE's weights of one output, and the word that becomes a control."""
    if dtype is Dtype.FP32:
        return np.append(weights, 0).astype(np.float32)
    index = np.nonzero(weights)[0]
    words = (index.astype(np.uint32) << np.uint32(16)) | encode(weights[index], dtype)
    return np.append(words, np.uint32(0)).astype(np.uint32).view(np.float32)


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
