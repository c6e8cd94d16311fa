"""Matrix products on the wafer.

*Weight streaming*: activations stay, weights pass by. ``Y[tokens, outputs] += X W`` with the
features of X along a row and its tokens down the columns. The weights of one output arrive in every
column at the PEs that hold their input features; each arriving weight multiplies its feature of all
local tokens and adds to the output's partial sums (an AXPY). Then a control wavelet starts the ring
that adds the partial sums of a row's PEs, from the PE behind the one that keeps the output once
round to its keeper, on a micro-thread beside the AXPYs of the next output (Lie, Hot Chips 34; IEEE
Micro 2023). So Y lies as X does. The backward pass for activations is the same product with inputs
and outputs exchanged.

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
    and an AXPY. The set-up of an output's ring is hidden behind the AXPYs of the next; its
    additions are not, since one datapath does both.
    """
    fabric = grid.fabric
    local_tokens, features = grid.tokens(tokens), grid.features(inputs)
    weight = axpy_cycles(fabric, local_tokens, dtype).at_least(fabric.cycles_per_wavelet)
    row = weight * (features * density) + Cycles(fabric=fabric.cycles_per_wavelet)
    exposed = Cycles(setup=max(0.0, fabric.vector_setup_cycles - row.total_cycles))
    per_output = row + exposed + _ring_step(fabric, local_tokens, dtype)
    return per_output * outputs + _fill(grid, outputs)


def _ring_step(fabric: FabricSpec, local_tokens: int, dtype: str) -> Cycles:
    """Add the partial sums of one output to the neighbour's, pass them on, and free their memory.

    The neighbour's first sums wait in the router's queue until AXPYs leave the datapath; they are
    added in a cycle each, later ones as the link brings them.
    """
    words = wavelets(fabric, local_tokens, dtype)
    link = fabric.cycles_per_wavelet * (words - fabric.queue_wavelets)
    return Cycles(fabric=max(words, link), setup=fabric.triggered_cycles)


def _fill(grid: Grid, outputs: int) -> Cycles:
    """What no output hides: the first weight's way, and sums' ways round the ring.

    The ring is folded into the row, so that its neighbours are two hops apart. Outputs come in the
    order of their keepers: a keeper's sums set out one link further than those of the keeper before
    and the last sum makes a whole trip. The first weights and the first ring are set up.
    """
    fabric = grid.fabric
    down = fabric.hop_cycles * (fabric.rows - 1) + depth_cycles(fabric)
    keepers = -(-outputs // grid.features(outputs))
    links = (keepers - 1) + (grid.hidden_pes - 1)
    around = (2 * fabric.hop_cycles + depth_cycles(fabric)) * links
    return Cycles(fabric=down + around, setup=2 * fabric.vector_setup_cycles)


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
