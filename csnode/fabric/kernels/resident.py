"""Products of resident operands: SUMMA, the gradient of a weight, and a matrix-vector product.

The parts of a moving operand are broadcast along lines of PEs, one by one; while one part is
multiplied, the next one is on its way. ``waferstream.machine.kernels.resident`` has the closed
forms, and a timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.broadcast import do_bus, route_bus
from csnode.fabric.collectives.reduce import add_reduce, add_sum
from csnode.fabric.collectives.trees import Tree
from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.instructions import Gemv, Instruction, Signal, Wait
from csnode.fabric.kernels.tiles import Result, join, split
from csnode.fabric.memory import Slice, SramArray
from csnode.fabric.program import EVERYWHERE, Program
from csnode.fabric.region import Fabric
from csnode.fabric.simulator.execution import run
from waferstream.core.errors import ApplianceCompilationError
from waferstream.machine.kernels.resident import gradient_block

_BUFFERS = 2  # one is filled while the other is used


@dataclass(frozen=True)
class MovingOperand:
    """Operand that moves along ``line``, on a thread and two events of its own.

    In each step, one position sends one of its ``parts`` to all, or several positions each send
    their only one. ``buffers[k]`` holds the places of the parts that arrive in one step,
    ``received[k]`` all of them as one operand. Operand ``number`` n uses thread n + 1; thread 0
    computes.
    """

    line: paths.Path
    parts: tuple[Slice, ...]
    buffers: tuple[tuple[Slice, ...], ...]
    received: tuple[Slice, ...]
    number: int

    @classmethod
    def in_parts(
        cls, program: Program, line: paths.Path, mine: SramArray, number: int, parts: int
    ) -> MovingOperand:
        """Divide ``mine`` of each position into equal ``parts``, one per step.

        A line of one position sends none.
        """
        length = mine.length // parts
        slices = tuple(mine[k * length : (k + 1) * length] for k in range(parts))
        if line.length == 1:
            return cls(line, slices, tuple((part,) for part in slices), slices, number)
        bank = mine.whole.bank(program.fabric.spec.sram_banks)
        banks = (bank,) * _BUFFERS
        wholes = tuple(array.whole for array in _buffers(program, mine, length, banks))
        return cls(line, slices, tuple((whole,) for whole in wholes), wholes, number)

    @classmethod
    def in_blocks(
        cls,
        program: Program,
        line: paths.Path,
        mine: SramArray,
        number: int,
        rows: int,
        block: int,
        banks: Sequence[int],
    ) -> MovingOperand:
        """Send ``mine``, of ``rows`` rows, of ``block`` positions per step, stored side by side.

        The buffers begin in ``banks``. A line of one position sends none.
        """
        if line.length == 1:
            whole = (mine.whole,)
            return cls(line, whole, (whole,), whole, number)
        width = mine.length // rows
        arrays = _buffers(program, mine, mine.length * block, banks)
        buffers = (
            tuple(a.columns(k * width, (k + 1) * width, block * width) for k in range(block))
            for a in arrays
        )
        return cls(line, (mine.whole,), tuple(buffers), tuple(a.whole for a in arrays), number)

    @property
    def steps(self) -> int:
        """Parts of all positions, divided by the parts of a step."""
        return self.line.length * len(self.parts) // len(self.buffers[0])

    @property
    def wait(self) -> Instruction:
        """Instruction that waits until the operand of the next step is here."""
        return Wait(self._filled)

    def at(self, step: int) -> Slice:
        """Return the operand of a step."""
        return self.received[step % len(self.received)]

    def release(self, step: int) -> tuple[Instruction, ...]:
        """Return the instructions that free the buffer of ``step``, if it will be filled again."""
        return (Signal(self._freed),) if step + _BUFFERS < self.steps else ()

    def add(self, program: Program, colour: int) -> None:
        """Add the routes, and the thread that receives parts as buffers become free."""
        route_bus(program, self.line, colour)
        everywhere, thread = self.line.between(0, self.line.length), self.number + 1
        for step in range(self.steps):
            if step >= _BUFFERS:
                program.do(everywhere, Wait(self._freed), thread=thread)
            places = self.buffers[step % len(self.buffers)]
            for turn, into in enumerate(places, start=step * len(places)):
                root, part = divmod(turn, len(self.parts))
                do_bus(program, self.line, root, self.parts[part], into, colour, thread)
            program.do(everywhere, Signal(self._filled), thread=thread)

    @property
    def _filled(self) -> int:
        return 2 * self.number

    @property
    def _freed(self) -> int:
        return 2 * self.number + 1


def _buffers(
    program: Program, mine: SramArray, length: int, banks: Sequence[int]
) -> tuple[SramArray, ...]:
    return tuple(
        program.array(f"{mine.name} {k}", length, mine.dtype, bank) for k, bank in enumerate(banks)
    )


def _apart(program: Program, sums: SramArray, size: int) -> list[int]:
    """Return a bank for each buffer in which none of the sums that it is added to begins.

    The sums of step k are the k-th ``size`` elements of ``sums``; buffers take turns.
    """
    banks = program.fabric.spec.sram_banks
    starts = [sums[k : k + 1].bank(banks) for k in range(0, sums.length, size)]
    return [
        next((bank for bank in range(0, banks, 2) if bank not in starts[k::_BUFFERS]), 0)
        for k in range(_BUFFERS)
    ]


def summa(fabric: Fabric, a: Array, b: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """Compute ``a @ b`` on a rectangle of PEs that each hold a tile of a, of b, and of the result.

    Each step broadcasts a slice of a's tiles in one column along the rows and a slice of b's in one
    row down the columns, into one of two buffers, while the slices of the step before are
    multiplied. Along the longer side, a tile is one slice. The longer side of a result's tile is
    the vector of the multiply-adds. Sums are fp32 (van de Geijn and Watts 1997).

    Raises:
        ApplianceCompilationError: A matrix does not divide among the PEs, or no side of the
            rectangle divides the other.
    """
    high, wide = fabric.rows, fabric.columns
    steps = _steps(fabric)
    rows, inner, columns = a.shape[0] // high, a.shape[1] // steps, b.shape[1] // wide
    transposed = rows > columns
    program = Program(fabric)
    left = program.array("a", rows * inner * (steps // wide), dtype, bank=0)
    right = program.array("b", inner * columns * (steps // high), dtype, bank=2)
    sums = program.array("c", rows * columns, Dtype.FP32, bank=4)
    vectors = columns if transposed else rows
    add_summa(program, left, right, sums, vectors, transposed=transposed)
    data = {
        "a": split(a, high, steps, transposed=transposed).reshape(high, wide, -1),
        "b": _down(split(b, steps, wide, transposed=transposed), high),
    }
    outcome = run(program, data)
    return Result(join(outcome.read("c"), rows, columns, transposed=transposed), outcome)


def _steps(fabric: Fabric) -> int:
    """Return the number of slices: the PEs of the longer side."""
    short, steps = sorted((fabric.rows, fabric.columns))
    if steps % short:
        raise ApplianceCompilationError(
            "one side of the rectangle of a SUMMA must be a multiple of the other",
            code="summa-sides-not-divisible",
            value=f"{fabric.rows} x {fabric.columns}",
            rule="rows divide columns, or columns divide rows",
        )
    return steps


def _down(tiles: Array, rows: int) -> Array:
    """Reorder tiles [slices, columns, n] to [rows, columns, slices of a row x n]."""
    slices, columns, size = tiles.shape
    parts = tiles.reshape(rows, slices // rows, columns, size).transpose(0, 2, 1, 3)
    return parts.reshape(rows, columns, -1)


def add_summa(
    program: Program,
    left: SramArray,
    right: SramArray,
    sums: SramArray,
    vectors: int,
    *,
    transposed: bool = False,
    colour: int = 0,
) -> None:
    """Multiply tiles of ``left``, which move along rows, by ``right``, which move down columns.

    ``left`` is [vectors, inner] and ``right`` [inner, columns] per slice of a PE. With
    ``transposed``, for sums stored column by column, ``left`` is [inner, rows] and ``right``
    [vectors, inner]. Takes two colours from ``colour``.
    """
    steps = _steps(program.fabric)
    fabric = program.fabric
    along = MovingOperand.in_parts(program, paths.rows(fabric), left, 0, steps // fabric.columns)
    down = MovingOperand.in_parts(program, paths.columns(fabric), right, 1, steps // fabric.rows)
    along.add(program, colour)
    down.add(program, colour + 1)
    for step in range(steps):
        west, north = along.at(step), down.at(step)
        matrix, vector = (west, north) if transposed else (north, west)
        product = Gemv(matrix, vector, sums.whole, vectors)
        releases = (*along.release(step), *down.release(step))
        program.do(EVERYWHERE, along.wait, down.wait, product, *releases)


def weight_gradient(
    fabric: Fabric, x: Array, dy: Array, dtype: Dtype = Dtype.FP32, tree: Tree | None = None
) -> Result:
    """Compute ``x.T @ dy`` of resident x [tokens, inputs] and dy [tokens, outputs].

    Tokens lie down the columns of PEs. The PEs of a row broadcast their parts of dy in turn; each
    PE multiplies some of them, side by side, by its part of x while the next ones are on their way.
    Gradients are fp32, summed down the columns into row 0, by the fastest tree or a given one.
    """
    rows, columns = fabric.rows, fabric.columns
    height, features, width = x.shape[0] // rows, x.shape[1] // columns, dy.shape[1] // columns
    program = Program(fabric)
    mine = program.array("dy", height * width, dtype, bank=0)
    at_rest = program.array("x", features * height, dtype, bank=2)
    gradients = program.array("dw", columns * features * width, Dtype.FP32, bank=4)
    tile = (height, features, width)
    block = gradient_block(fabric.spec, columns, tile, dtype.torch_name, must_divide=True)
    size = features * block * width
    banks = _apart(program, gradients, size)
    moving = MovingOperand.in_blocks(program, paths.rows(fabric), mine, 0, height, block, banks)
    moving.add(program, colour=0)
    for step in range(moving.steps):
        sums = gradients[step * size : (step + 1) * size]
        product = Gemv(moving.at(step), at_rest.whole, sums, vectors=features)
        program.do(EVERYWHERE, moving.wait, product, *moving.release(step))
    down = paths.columns(fabric)
    if tree is None:
        add_sum(program, down, gradients.whole, colour=1)
    else:
        add_reduce(program, down, tree, gradients.whole, (1, 2))
    data = {"x": split(x, rows, columns, transposed=True), "dy": split(dy, rows, columns)}
    outcome = run(program, data)
    blocks = outcome.read("dw")[0].reshape(columns, moving.steps, features, block * width)
    return Result(blocks.transpose(0, 2, 1, 3).reshape(x.shape[1], dy.shape[1]), outcome)


def gemv(fabric: Fabric, matrix: Array, vector: Array, dtype: Dtype = Dtype.FP32) -> Result:
    """Compute ``matrix @ vector`` with outputs down the columns and inputs along the rows.

    Each PE holds its part of the vector. Sums are fp32 and end in column 0.
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
