"""Closed forms of products of two resident operands.

Slices of an operand move along lines of PEs; the results stay.

*SUMMA* (van de Geijn and Watts 1997), as in attention: slices of one operand are broadcast along
the rows of a rectangle of PEs, slices of the other down its columns. *Substitution*: the same, but
each slice is a result of the step before. *Weight gradient*,
``dW = X^T dY``: dY is broadcast along the rows; the products are summed over the tokens down the
columns, and leave the wafer.

Sizes of a PE's tile: ``rows`` x ``columns`` of a result, or ``tokens`` (of X and dY), ``features``
(inputs of X) and ``width`` (outputs of dY).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.kernels.collectives import depth_cycles, reduce, stream_cycles
from waferstream.machine.kernels.grid import Cycles, Grid
from waferstream.machine.kernels.single_pe import axpy_cycles, wavelets

ACCUMULATOR_BYTES = 4
"""Sums are fp32."""
SIGNAL_CYCLES = 1
"""One instruction, by which a thread of a PE reports to another that a buffer is full, or free."""


def resident_product(
    grid: Grid, batch: int, rows: int, inner: int, columns: int, dtype: str
) -> Cycles:
    """Return the cost of ``batch`` products of rows x inner by inner x columns.

    The PEs are divided evenly among the products, a rectangle for each. If there are more products
    than PEs, each PE computes several, one after the other.
    """
    high, wide, rounds = grid.rectangles(batch, rows, columns)
    tile = (ceil(rows / high), ceil(columns / wide))
    return summa(grid.fabric, (high, wide), tile, inner, dtype) * rounds


def summa(
    fabric: FabricSpec, pes: tuple[int, int], tile: tuple[int, int], inner: int, dtype: str
) -> Cycles:
    """Return the cost of one product on a rectangle of PEs.

    The inner dimension is cut into as many slices as the longer side has PEs. Each axpy runs over
    the longer side of the tile.

    Args:
        pes: Height and width of the rectangle.
        tile: Rows and columns of the result on each PE.
        inner: Length of the dimension that is summed over.
        dtype: Type of the operands; sums are fp32.
    """
    (high, wide), (rows, columns) = pes, tile
    width = ceil(inner / max(pes))
    slices = ceil(inner / width)
    product = axpy_cycles(fabric, max(tile), dtype) * (min(tile) * inner / slices)
    moving = [
        MovingOperand(line, wavelets(fabric, side * width, dtype))
        for side, line in ((rows, wide), (columns, high))
    ]
    return product_in_steps(fabric, product, slices, moving)


@dataclass(frozen=True)
class MovingOperand:
    """Operand whose slices the ``pes`` of a line send in turn, ``wavelets`` each.

    One step of the product takes the slices of ``senders`` PEs.
    """

    pes: int
    wavelets: float
    senders: int = 1


def product_in_steps(
    fabric: FabricSpec, product: Cycles, steps: int, moving: Sequence[MovingOperand]
) -> Cycles:
    """Return the cost of ``steps`` products whose operands arrive slice by slice.

    Two buffers per operand: while a PE multiplies from one, a thread fills the other::

        moving thread   |--- slices 1 ---|- slices 2 -|- slices 3 -|   into buffers 0, 1, 0, ...
        compute thread  |     first      | product 1 |w| product 2 |w| product 3 |
                                         |<-- later ->|

    ``first`` is the way of the first slices to the farthest PE. ``later`` is the time between the
    slices of two steps; a PE waits (w) where it is longer than a product. Every product and every
    sending starts a vector instruction. The threads signal full and free buffers to each other.

    Args:
        product: Cost of one step's multiply-adds.
        steps: Number of steps.
        moving: The operands; those on a line of one PE do not move.
    """
    each = product + Cycles(setup=fabric.vector_setup_cycles)
    lines = [operand for operand in moving if operand.pes > 1]
    if not lines:
        return each * steps
    # All operands of a step enter a PE through one ramp, one wavelet per cycle.
    ramp = sum(operand.senders * ceil(operand.wavelets) for operand in lines)
    first = max(first_arrival(fabric, operand, ramp) for operand in lines)
    later = max(ramp, *(between_arrivals(fabric, operand, steps) for operand in lines))
    waits = first + max(0.0, later - each.total_cycles) * (steps - 1)
    # The last two steps free no buffer, since nothing follows in it.
    freed = len(moving) * SIGNAL_CYCLES * max(0, steps - 2)
    return each * steps + Cycles(fabric=waits, setup=freed)


def first_arrival(fabric: FabricSpec, operand: MovingOperand, ramp: int) -> float:
    """Return the cycles until the farthest PE has the first step's slices of an operand."""
    sent = fabric.vector_setup_cycles + depth_cycles(fabric)
    words = max(ramp, operand.senders * stream_cycles(fabric, operand.wavelets))
    return operand.senders * sent + fabric.hop_cycles * (operand.pes - 1) + words + SIGNAL_CYCLES


def between_arrivals(fabric: FabricSpec, operand: MovingOperand, steps: int) -> float:
    """Return the mean cycles between the slices of two steps, if nothing else delays them.

    A PE sends when it has received the slice before. If the same PE sends twice in a row, the
    second slice does not wait for the first to reach the next sender.
    """
    changes_of_sender = min(1.0, (operand.pes - 1) / max(1, steps * operand.senders - 1))
    change = changes_of_sender * (depth_cycles(fabric) + fabric.hop_cycles)
    sent = fabric.vector_setup_cycles + stream_cycles(fabric, operand.wavelets)
    return operand.senders * (sent + change) + SIGNAL_CYCLES


def triangular_solve(grid: Grid, batch: int, rows: int, columns: int, dtype: str) -> Cycles:
    """Return the cost of ``batch`` triangular systems with ``columns`` right-hand sides each.

    Column-oriented forward substitution (Golub and Van Loan, "Matrix Computations", 4th edition,
    algorithm 3.1.3): in each of ``rows`` steps a row of the solution and a column of the matrix are
    broadcast, and their outer product is taken from the rows that follow. A step needs the result
    of the one before, so that no arrival is hidden. Systems lie as products do.
    """
    high, wide, rounds = grid.rectangles(batch, rows, columns)
    tile = (ceil(rows / high), ceil(columns / wide))
    fabric = grid.fabric
    product = axpy_cycles(fabric, max(tile), dtype) * min(tile)
    lines = [
        MovingOperand(line, wavelets(fabric, side, dtype))
        for side, line in zip(tile, (wide, high), strict=True)
        if line > 1
    ]
    ramp = sum(ceil(operand.wavelets) for operand in lines)
    arrival = max((first_arrival(fabric, operand, ramp) for operand in lines), default=0.0)
    step = product + Cycles(fabric=arrival, setup=fabric.vector_setup_cycles)
    return step * (rows * rounds)


def weight_gradient(grid: Grid, tokens: int, inputs: int, outputs: int, dtype: str) -> Cycles:
    """Return the cost of ``dW[inputs, outputs] = X[tokens, inputs]^T dY[tokens, outputs]``.

    In a step, each PE receives the parts of dY of some PEs of its row, side by side. Every value of
    X multiplies one row of them and adds it to the gradients of its input. The gradients are summed
    in fp32 down the column of PEs, and over the replicas of a row.
    """
    fabric, width = grid.fabric, grid.features(outputs)
    tile = (grid.tokens(tokens), grid.features(inputs), width)
    parts = ceil(outputs / width)
    block = gradient_block(fabric, parts, tile, dtype)
    products = gradient_products(fabric, parts, tile, block, dtype)
    gradients = grid.features(inputs) * outputs
    sums = [reduce(fabric, line, gradients) for line in (fabric.rows, grid.replicas_per_row)]
    starts = fabric.vector_setup_cycles * sum(cycles > 0 for cycles in sums)
    return products + Cycles(fabric=sum(sums), setup=starts)


def gradient_products(
    fabric: FabricSpec, parts: int, tile: tuple[int, int, int], block: int, dtype: str
) -> Cycles:
    """Return the cost of the products of a weight gradient on one PE.

    Args:
        parts: PEs of a row that hold a part of dY.
        tile: Tokens, features and width on one PE.
        block: Parts that a step multiplies side by side.
        dtype: Type of the operands.
    """
    tokens, features, width = tile
    steps = ceil(parts / block)
    product = axpy_cycles(fabric, ceil(parts * width / steps), dtype) * (features * tokens)
    moving = MovingOperand(parts, wavelets(fabric, tokens * width, dtype), ceil(parts / steps))
    return product_in_steps(fabric, product, steps, [moving])


@lru_cache(maxsize=4096)
def gradient_block(
    fabric: FabricSpec,
    parts: int,
    tile: tuple[int, int, int],
    dtype: str,
    *,
    must_divide: bool = False,
) -> int:
    """Return the fastest number of parts per step: a power of two, at least one.

    The gradients of a block must fit one bank of SRAM. More parts make longer vectors, fewer parts
    hide more of the transfer. With ``must_divide``, the block divides ``parts``.
    """
    _, features, width = tile
    accumulators = fabric.sram_bytes_per_pe // fabric.sram_banks // ACCUMULATOR_BYTES
    largest = max(1, min(parts, accumulators // (features * width)))
    blocks = [1 << k for k in range(largest.bit_length())]
    fitting = [block for block in blocks if not must_divide or parts % block == 0]
    return min(fitting, key=lambda n: gradient_products(fabric, parts, tile, n, dtype).total_cycles)
