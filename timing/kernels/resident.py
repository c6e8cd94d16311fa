"""Products of two resident operands: slices of them move along lines of PEs, the results stay.

*SUMMA* (van de Geijn and Watts 1997), as in attention: slices of one operand are broadcast along
the rows of a rectangle of PEs, slices of the other down its columns. *Weight gradient*:
``dW = X^T dY``; dY is broadcast along the rows, and products are summed over the tokens down the
columns, out of the wafer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from timing.hardware.fabric import FabricSpec
from timing.kernels.collectives import depth_cycles, reduce, stream_cycles
from timing.kernels.grid import Cycles, Grid
from timing.kernels.single_pe import axpy_cycles, wavelets

ACCUMULATOR_BYTES = 4
SIGNAL_CYCLES = 1
"""One instruction, with which a thread of a PE tells another that a buffer is full, or free."""


def resident_product(
    grid: Grid, batch: int, rows: int, inner: int, columns: int, dtype: str
) -> Cycles:
    """``batch`` products of rows x inner with inner x columns, all operands resident.

    The PEs are divided evenly among the products, each on its own rectangle; if there are more
    products than PEs, each PE does several.
    """
    high, wide, rounds = grid.rectangles(batch, rows, columns)
    tile = (ceil(rows / high), ceil(columns / wide))
    return summa(grid.fabric, (high, wide), tile, inner, dtype) * rounds


def summa(
    fabric: FabricSpec, pes: tuple[int, int], tile: tuple[int, int], inner: int, dtype: str
) -> Cycles:
    """One product on a rectangle of ``pes`` (high, wide), each with a ``tile`` of the result.

    The inner dimension is passed through in as many slices as the longer side has PEs. Each axpy
    runs over the longer side of the tile.
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
    """An operand whose slices the ``pes`` of a line send in turn, ``wavelets`` each.

    A step of the product takes the slices of ``senders``.
    """

    pes: int
    wavelets: float
    senders: int = 1


def product_in_steps(
    fabric: FabricSpec, product: Cycles, steps: int, moving: Sequence[MovingOperand]
) -> Cycles:
    """A ``product`` in each of ``steps``, for which PEs send slices of operands to each other.

    While a PE works on slices in one buffer, another is filled. Each product and each sending
    starts a vector instruction; threads signal each other what is full and what is free. The first
    slices are waited for, on their longest way and one by one through the ramp; later ones where
    they take longer than a product. Whose turn it is next sends when it has taken in the slice
    before.
    """
    each = product + Cycles(setup=fabric.vector_setup_cycles)
    lines = [operand for operand in moving if operand.pes > 1]
    if not lines:
        return each * steps
    ramp = sum(operand.senders * ceil(operand.wavelets) for operand in lines)
    first = max(_first_arrives(fabric, operand, ramp) for operand in lines)
    later = max(ramp, *(_between_arrivals(fabric, operand, steps) for operand in lines))
    waits = first + max(0.0, later - each.total_cycles) * (steps - 1)
    freed = len(moving) * SIGNAL_CYCLES * max(0, steps - 2)
    return each * steps + Cycles(fabric=waits, setup=freed)


def _first_arrives(fabric: FabricSpec, operand: MovingOperand, ramp: int) -> float:
    """Until the slices of the first step are with the farthest PE, which takes in ``ramp``."""
    sent = fabric.vector_setup_cycles + depth_cycles(fabric)
    words = max(ramp, operand.senders * stream_cycles(fabric, operand.wavelets))
    return operand.senders * sent + fabric.hop_cycles * (operand.pes - 1) + words + SIGNAL_CYCLES


def _between_arrivals(fabric: FabricSpec, operand: MovingOperand, steps: int) -> float:
    """From step to step where slices are waited for: a PE that sends two does not wait between."""
    changes = min(1.0, (operand.pes - 1) / max(1, steps * operand.senders - 1))
    turn = changes * (depth_cycles(fabric) + fabric.hop_cycles)
    sent = fabric.vector_setup_cycles + stream_cycles(fabric, operand.wavelets)
    return operand.senders * (sent + turn) + SIGNAL_CYCLES


def weight_gradient(grid: Grid, tokens: int, inputs: int, outputs: int, dtype: str) -> Cycles:
    """``dW[inputs, outputs] = X[tokens, inputs]^T dY[tokens, outputs]``, both operands resident.

    Each PE takes the parts of dY of some PEs of its row, side by side; every value of X adds its
    multiple of a row of them. The gradients of a column of PEs are summed down the column in fp32.
    So are those of a row's replicas_per_row.
    """
    fabric, width = grid.fabric, grid.features(outputs)
    tile = (grid.tokens(tokens), grid.features(inputs), width)
    parts = ceil(outputs / width)
    products = gradient_products(
        fabric, parts, tile, gradient_block(fabric, parts, tile, dtype), dtype
    )
    gradients = grid.features(inputs) * outputs
    sums = [reduce(fabric, line, gradients) for line in (fabric.rows, grid.replicas_per_row)]
    starts = fabric.vector_setup_cycles * sum(cycles > 0 for cycles in sums)
    return products + Cycles(fabric=sum(sums), setup=starts)


def gradient_products(
    fabric: FabricSpec, parts: int, tile: tuple[int, int, int], block: int, dtype: str
) -> Cycles:
    """Multiply ``block`` of the ``parts`` of dY at a time; a tile is tokens, inputs, outputs."""
    tokens, features, width = tile
    steps = ceil(parts / block)
    product = axpy_cycles(fabric, ceil(parts * width / steps), dtype) * (features * tokens)
    moving = MovingOperand(parts, wavelets(fabric, tokens * width, dtype), ceil(parts / steps))
    return product_in_steps(fabric, product, steps, [moving])


@lru_cache(maxsize=4096)
def gradient_block(
    fabric: FabricSpec, parts: int, tile: tuple[int, int, int], dtype: str, *, even: bool = False
) -> int:
    """The fastest power of two of parts whose gradients fit one bank of SRAM; at least one part.

    More make longer vectors, fewer hide more of what moves. ``even``: it divides the parts.
    """
    _, features, width = tile
    role = max(1, min(parts, _accumulators(fabric) // (features * width)))
    blocks = [1 << k for k in range(role.bit_length())]
    fitting = [block for block in blocks if not even or parts % block == 0]
    return min(fitting, key=lambda n: gradient_products(fabric, parts, tile, n, dtype).total_cycles)


def _accumulators(fabric: FabricSpec) -> int:
    """Accumulators in one bank of SRAM."""
    return fabric.sram_bytes_per_pe // fabric.sram_banks // ACCUMULATOR_BYTES
