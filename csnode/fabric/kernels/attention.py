"""Attention of one head on a square of PEs: scores, softmax, values."""

from __future__ import annotations

from csnode.fabric.collectives import paths
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Gemv
from csnode.fabric.kernels.moving_operand import MovingOperand
from csnode.fabric.kernels.softmax import add_softmax
from csnode.fabric.kernels.summa import add_summa
from csnode.fabric.kernels.sums import add_sum
from csnode.fabric.kernels.tiles import Result, join, split
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.simulator import run
from wsc.core.errors import ApplianceCompilationError

_SCORES, _SOFTMAX, _VALUES, _SUMS = 0, 2, 8, 9
"""First colours."""


def attention(fabric: Fabric, q: Array, k: Array, v: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """``softmax(q k^T / sqrt(head size)) v`` of q [queries, head size], k and v [keys, head size].

    Queries lie down the columns and keys along the rows; a PE keeps its queries x keys of the
    scores. They are a SUMMA product, the softmax runs along the rows, and the values move down the
    columns past the scores, to partial results that are summed along the rows into column 0. The
    scale is folded into q.
    """
    side = _square_side(fabric)
    head = q.shape[1]
    queries, keys, slice_of_head = q.shape[0] // side, k.shape[0] // side, head // side
    program = Program(fabric)
    left = program.array("q", queries * slice_of_head, dtype, bank=0)
    right = program.array("k", keys * slice_of_head, dtype, bank=2)
    values = program.array("v", keys * slice_of_head, dtype, bank=2)
    scores = program.array("scores", keys * queries, dtype, bank=6)
    sums = program.array("sums", head * queries, dtype, bank=4)
    add_summa(program, left, right, scores, keys, transposed=True, colour=_SCORES)
    add_softmax(program, scores, queries, _SOFTMAX)
    moving = MovingOperand.in_parts(program, paths.columns(fabric), values, number=2, parts=1)
    moving.add(program, _VALUES)
    for step in range(side):
        start, stop = (part * slice_of_head * queries for part in (step, step + 1))
        product = Gemv(scores.whole, moving.at(step), sums[start:stop], vectors=slice_of_head)
        program.do(EVERYWHERE, moving.wait, product, *moving.release(step))
    add_sum(program, paths.rows(fabric), sums.whole, _SUMS)
    data = {
        "q": split(q * head**-0.5, side, side, transposed=True),
        "k": split(k.T, side, side, transposed=True),
        "v": split(v.T, side, side),
    }
    outcome = run(program, data)
    return Result(join(outcome.read("sums")[:, :1], queries, head, transposed=True), outcome)


def _square_side(fabric: Fabric) -> int:
    if fabric.rows != fabric.columns:
        raise ApplianceCompilationError(
            "attention needs a square of PEs",
            value=f"{fabric.rows} x {fabric.columns}",
            rule="as many rows as columns",
        )
    return fabric.rows
