"""Matrix products on the wafer.

*Weight streaming*: activations stay, weights pass by. ``Y[tokens, outputs] += X W`` with the
features of X along a row and its tokens down the columns. The weights of one output arrive in every
column at the PEs that hold their input features; each arriving weight multiplies its feature of all
local tokens and adds to the output's partial sums (an AXPY). Then a control wavelet starts the ring
that adds the partial sums of a row's PEs, one after the other, on their way to the PE that keeps
the output (Lie, Hot Chips 34; IEEE Micro 2023). The backward pass for activations is the same
product with inputs and outputs exchanged.

*Weight gradient*: ``dW = X^T dY``; both operands stay, dY is broadcast along the row, and products
are summed over the tokens down the columns, out of the wafer.

*Resident product*: both operands stay and are broadcast along rows and columns (SUMMA), as in
attention.
"""

from __future__ import annotations

from math import ceil

from wsc.timing.hardware.fabric import FabricSpec
from wsc.timing.kernels.collectives import depth_cycles, reduce
from wsc.timing.kernels.cycles import Cycles
from wsc.timing.kernels.grid import Grid
from wsc.timing.kernels.single_pe import axpy_cycles, wavelets

ACCUMULATOR_BYTES = 4


def weight_streaming(
    grid: Grid, tokens: int, inputs: int, outputs: int, dtype: str, density: float = 1.0
) -> Cycles:
    """``Y[tokens, outputs] += X[tokens, inputs] W[inputs, outputs]`` with streamed weights.

    Of the weights only the share ``density`` is not zero and arrives, evenly spread. Each takes
    one wavelet, value and index (Hot Chips 34), and the longer of the link's time for a wavelet
    and an AXPY. The datapath that adds the partial sums is the one that does the AXPYs, so both
    count; the distance that sums travel is hidden behind later outputs except at the end.
    """
    fabric = grid.fabric
    local_tokens, features = grid.tokens(tokens), grid.features(inputs)
    arriving = features * density
    weight = axpy_cycles(fabric, local_tokens, dtype).at_least(fabric.cycles_per_wavelet)
    per_output = weight * arriving + _ring_step(grid, local_tokens, dtype)
    return per_output * outputs + Cycles(fabric=_fill(grid))


def _ring_step(grid: Grid, local_tokens: int, dtype: str) -> Cycles:
    """On a control wavelet, add the partial sums of one output to the neighbour's and pass on.

    As in a chain, what arrives is added at the speed of the link.
    """
    if grid.hidden_pes == 1:
        return Cycles()
    fabric = grid.fabric
    link = fabric.cycles_per_wavelet * (1 + wavelets(fabric, local_tokens, dtype))
    return Cycles(fabric=link, setup=fabric.vector_setup_cycles)


def _fill(grid: Grid) -> float:
    """The first weight's way down the column, and the last partial sum's way round the ring.

    The ring is folded into the row: its neighbours are two hops apart.
    """
    fabric = grid.fabric
    down = fabric.hop_cycles * (fabric.rows - 1) + depth_cycles(fabric)
    around = (2 * fabric.hop_cycles + depth_cycles(fabric)) * (grid.hidden_pes - 1)
    return float(down + around)


def weight_gradient(grid: Grid, tokens: int, inputs: int, outputs: int, dtype: str) -> Cycles:
    """``dW[inputs, outputs] = X[tokens, inputs]^T dY[tokens, outputs]``, both operands resident.

    Each PE takes dY in blocks of outputs; every value of X adds its multiple of a row of the block
    to the block's gradients, which are as many as fit one bank of SRAM. The gradients of a column
    of PEs are summed down the column in fp32, at one wavelet per cycle. Taking in dY, but for the
    first PE's part, is hidden behind arithmetic where that is longer (K0133: so is SUMMA's
    broadcast).
    """
    fabric = grid.fabric
    local_tokens, features = grid.tokens(tokens), grid.features(inputs)
    blocks = min(outputs, ceil(outputs * features / _accumulators(fabric)))
    block = ceil(outputs / blocks)
    axpys = blocks * features * local_tokens
    taken_in = fabric.cycles_per_wavelet * wavelets(fabric, local_tokens * outputs, dtype)
    products = (axpy_cycles(fabric, block, dtype) * axpys).at_least(taken_in)
    gradients = features * outputs
    down = reduce(fabric, fabric.rows, gradients)
    across = reduce(fabric, grid.stretches, gradients)
    first = taken_in / grid.hidden_pes
    return products + Cycles(fabric=first + down + across, setup=fabric.vector_setup_cycles)


def _accumulators(fabric: FabricSpec) -> int:
    """Accumulators in one bank of SRAM."""
    return fabric.sram_bytes_per_pe // fabric.sram_banks // ACCUMULATOR_BYTES


def resident_product(
    grid: Grid, batch: int, rows: int, inner: int, columns: int, dtype: str
) -> Cycles:
    """``batch`` products of rows x inner with inner x columns, all operands resident.

    The PEs are divided evenly among the products, each on its own rectangle; if there are more
    products than PEs, each PE does several. A PE keeps a tile of the result. The inner dimension is
    passed through in as many slices as the rectangle's longer side has PEs: one of an operand along
    its rows and one of the other down its columns, hidden behind the arithmetic of the slice before
    where that is longer.
    """
    fabric = grid.fabric
    high, wide, rounds = grid.rectangles(batch, rows, columns)
    tile_rows, tile_columns = -(-rows // high), -(-columns // wide)
    axpy = axpy_cycles(fabric, max(tile_rows, tile_columns), dtype)
    product = axpy * (min(tile_rows, tile_columns) * inner)
    moved = tile_rows * (wide > 1) + tile_columns * (high > 1)
    link = fabric.cycles_per_wavelet * wavelets(fabric, moved * inner, dtype)
    fill = fabric.hop_cycles * (high + wide - 2) + depth_cycles(fabric)
    steps = in_turns(fabric, product, link, max(high, wide))
    return steps * rounds + Cycles(fabric=fill)


def in_turns(fabric: FabricSpec, product: Cycles, link: float, pes: int) -> Cycles:
    """A product whose moving operand is sent by ``pes`` PEs in turn, over ``link`` cycles in all.

    The first slice is waited for; each starts a vector instruction, as does the first sending.
    """
    slices = Cycles(fabric=link / pes, setup=fabric.vector_setup_cycles * (pes + (pes > 1)))
    return product.at_least(link) + slices
