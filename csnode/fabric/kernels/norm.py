"""Layer norm and RMS norm over features that are spread along a row of PEs."""

from __future__ import annotations

from csnode.fabric.collectives import paths
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.grid import Fabric
from csnode.fabric.instructions import Vector
from csnode.fabric.kernels.sums import add_sum_for_all
from csnode.fabric.kernels.tiles import Result, join, split
from csnode.fabric.memory import SramArray
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.simulator import run


def layer_norm(
    fabric: Fabric,
    x: Array,
    scale: Array,
    shift: Array,
    dtype: Dtype = Dtype.FP32,
    epsilon: float = 1e-5,
) -> Result:
    """``(x - mean) / sqrt(variance + epsilon) * scale + shift`` of each row of x [tokens, n].

    Sum and sum of squares of a token are fp32 and go along the row together. Scale and shift
    [features] are held for each token of a tile, so that one vector op applies them.
    """
    return _norm(fabric, x, scale, shift, dtype, epsilon, centred=True)


def rms_norm(
    fabric: Fabric, x: Array, scale: Array, dtype: Dtype = Dtype.FP32, epsilon: float = 1e-5
) -> Result:
    """``x / sqrt(mean of squares + epsilon) * scale`` of each row of x [tokens, features]."""
    return _norm(fabric, x, scale, 0 * scale, dtype, epsilon, centred=False)


def _norm(
    fabric: Fabric,
    x: Array,
    scale: Array,
    shift: Array,
    dtype: Dtype,
    epsilon: float,
    *,
    centred: bool,
) -> Result:
    height, width = x.shape[0] // fabric.rows, x.shape[1] // fabric.columns
    program = Program(fabric)
    tile, weight, bias = (
        program.array(name, height * width, dtype, bank)
        for name, bank in (("x", 0), ("scale", 2), ("shift", 4))
    )
    _add_norm(program, tile, height, x.shape[1], epsilon, centred=centred)
    program.do(EVERYWHERE, Vector("fma", tile.whole, tile.whole, weight.whole, bias.whole))
    data = {"x": x, "scale": scale[None] + 0 * x, "shift": shift[None] + 0 * x}
    tiles = {k: split(v, fabric.rows, fabric.columns, transposed=True) for k, v in data.items()}
    outcome = run(program, tiles)
    return Result(join(outcome.read("x"), height, width, transposed=True), outcome)


def _add_norm(
    program: Program, tile: SramArray, tokens: int, features: int, epsilon: float, *, centred: bool
) -> None:
    """Normalize a tile [features, tokens] in place: ``x * factor + offset``, both per token."""
    sums = program.array("sums", 2 * tokens, Dtype.FP32, bank=2)
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
