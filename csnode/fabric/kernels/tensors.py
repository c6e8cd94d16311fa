"""Softmax, norms, attention, embedding and loss over features spread along a row of PEs.

Tokens lie down the columns. A PE stores its tile feature by feature, so that the tokens of a vector
op lie side by side. ``waferstream.machine.kernels.tensors`` has the closed forms.
"""

from __future__ import annotations

import numpy as np

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.reduce import COLOURS, add_sum, add_sum_for_all
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.instructions import Gather, Gemv, Vector
from csnode.fabric.kernels.resident import MovingOperand, add_summa
from csnode.fabric.kernels.tiles import Result, join, split
from csnode.fabric.memory import SramArray
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from waferstream.core.errors import ApplianceCompilationError

_SCORES, _SOFTMAX, _VALUES, _SUMS = 0, 2, 8, 9
"""First colours of the score product, the softmax, the moving values and their sums."""


def softmax(fabric: Fabric, x: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """Compute ``exp(x - max) / sum`` of each row of x [tokens, features].

    Maxima and sums are fp32, each all-reduced along the row.
    """
    height, width = x.shape[0] // fabric.rows, x.shape[1] // fabric.columns
    program = Program(fabric)
    tile = program.array("x", height * width, dtype, bank=0)
    add_softmax(program, tile, height, colour=0)
    outcome = run(program, {"x": split(x, fabric.rows, fabric.columns, transposed=True)})
    return Result(join(outcome.read("x"), height, width, transposed=True), outcome)


def add_softmax(program: Program, tile: SramArray, tokens: int, colour: int) -> None:
    """Add a softmax over rows, in place of a tile [features, tokens] of every PE.

    Takes six colours from ``colour``.
    """
    total = program.array("total", tokens, Dtype.FP32, bank=4)
    add_shifted(program, tile, tokens, colour)
    x = tile.whole
    program.do(EVERYWHERE, Vector("exp", x, x), Vector("sum", total.whole, x))
    add_sum_for_all(program, paths.rows(program.fabric), total.whole, colour + COLOURS)
    program.do(EVERYWHERE, Vector("reciprocal", total.whole, total.whole))
    program.do(EVERYWHERE, Vector("multiply", x, x, total.whole))


def add_shifted(program: Program, tile: SramArray, tokens: int, colour: int) -> None:
    """Subtract from each token its maximum over the row; takes three colours from ``colour``."""
    top, x = program.array("top", tokens, Dtype.FP32, bank=2), tile.whole
    program.do(EVERYWHERE, Vector("max", top.whole, x))
    add_sum_for_all(program, paths.rows(program.fabric), top.whole, colour, "maximum")
    program.do(EVERYWHERE, Vector("subtract", x, x, top.whole))


def attention(fabric: Fabric, q: Array, k: Array, v: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """Compute ``softmax(q k^T / sqrt(head size)) v`` of one head on a square of PEs.

    q is [queries, head size], k and v are [keys, head size]. Queries lie down the columns and keys
    along the rows; a PE keeps its queries x keys of the scores. The scores are a SUMMA product, the
    softmax runs along the rows, and the values move down the columns past the scores, into partial
    results that are summed along the rows into column 0. The scale is folded into q.
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
            "the PEs of an attention must be a square",
            code="attention-grid-not-square",
            value=f"{fabric.rows} x {fabric.columns}",
            rule="rows = columns",
        )
    return fabric.rows


def layer_norm(
    fabric: Fabric,
    x: Array,
    scale: Array,
    shift: Array,
    dtype: Dtype = Dtype.FP32,
    epsilon: float = 1e-5,
    features: int | None = None,
) -> Result:
    """Compute ``(x - mean) / sqrt(variance + epsilon) * scale + shift`` of each row of x.

    Sum and sum of squares of a token are fp32 and travel along the row together. Scale and shift
    [features] are stored for each token of a tile, so that one vector op applies them. The first
    ``features`` count where zeros pad the others.
    """
    return _norm(fabric, x, scale, shift, dtype, epsilon, features or x.shape[1], centred=True)


def rms_norm(
    fabric: Fabric,
    x: Array,
    scale: Array,
    dtype: Dtype = Dtype.FP32,
    epsilon: float = 1e-5,
    features: int | None = None,
) -> Result:
    """Compute ``x / sqrt(mean of squares + epsilon) * scale`` of each row of x.

    x is [tokens, features], scale [features]. ``features`` as for ``layer_norm``.
    """
    return _norm(fabric, x, scale, 0 * scale, dtype, epsilon, features or x.shape[1], centred=False)


def _norm(
    fabric: Fabric,
    x: Array,
    scale: Array,
    shift: Array,
    dtype: Dtype,
    epsilon: float,
    features: int,
    *,
    centred: bool,
) -> Result:
    height, width = x.shape[0] // fabric.rows, x.shape[1] // fabric.columns
    program = Program(fabric)
    tile, weight, bias = (
        program.array(name, height * width, dtype, bank)
        for name, bank in (("x", 0), ("scale", 2), ("shift", 4))
    )
    _add_norm(program, tile, height, features, epsilon, centred=centred)
    program.do(EVERYWHERE, Vector("fma", tile.whole, tile.whole, weight.whole, bias.whole))
    data = {"x": x, "scale": scale[None] + 0 * x, "shift": shift[None] + 0 * x}
    tiles = {k: split(v, fabric.rows, fabric.columns, transposed=True) for k, v in data.items()}
    outcome = run(program, tiles)
    return Result(join(outcome.read("x"), height, width, transposed=True), outcome)


def _add_norm(
    program: Program, tile: SramArray, tokens: int, features: int, epsilon: float, *, centred: bool
) -> None:
    """Normalize a tile [features, tokens] in place: ``x * factor + offset``, both per token."""
    # Both halves of the sums begin in another bank than the tile (csnode.fabric.memory).
    sums = program.array("sums", 2 * tokens, Dtype.FP32, bank=4 if tokens % 4 == 3 else 2)
    factor = program.array("factor", tokens, Dtype.FP32, bank=4)
    offset = program.array("offset", tokens, Dtype.FP32, bank=6)
    x, mean, square = tile.whole, sums[:tokens], sums[tokens:]
    if centred:
        program.do(EVERYWHERE, Vector("sum", mean, x))
    program.do(EVERYWHERE, Vector("dot", square, x, x))
    of_row = sums.whole if centred else square
    add_sum_for_all(program, paths.rows(program.fabric), of_row, colour=0)
    program.do(
        EVERYWHERE,
        Vector("multiply", of_row, of_row, 1 / features),
        Vector("multiply", offset.whole, mean, mean),
        Vector("subtract", factor.whole, square, offset.whole),
        Vector("add", factor.whole, factor.whole, epsilon),
        Vector("rsqrt", factor.whole, factor.whole),
        Vector("multiply", offset.whole, mean, factor.whole),
        Vector("multiply", offset.whole, offset.whole, -1.0),
        Vector("fma", x, x, factor.whole, offset.whole),
    )


def embedding(fabric: Fabric, table: Array, tokens: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """Compute ``table[tokens]`` of a table [rows, features] and tokens [n].

    The features of the table lie along the columns, tokens down the rows. A PE holds its features
    of all rows of the table and copies one row for each of its tokens.
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
    """Compute the mean over tokens of ``log(sum(exp(logits))) - logits[class]``.

    The logarithm of the softmax of logits [tokens, classes] runs along the rows. The PE that holds
    the class of a token picks it, and the picked values are summed in fp32 along rows and down
    column 0. ``values`` is one number.
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
    """Return where each token's class lies in the tile of a PE, or -1: [rows, columns, height]."""
    of_row = classes.reshape(fabric.rows, 1, height)
    local = of_row - width * np.arange(fabric.columns)[None, :, None]
    place = local * height + np.arange(height)
    return np.where((local >= 0) & (local < width), place, -1)
