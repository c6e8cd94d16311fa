"""Constants of published programs: what their loops cost, on top of what the PE and fabric do.

Published programs for products: the SDK's matvec and SUMMA, a loop over vector instructions.

Matrix-vector products with a resident matrix, spread over a grid.

With streamed weights, a matrix-vector product is ``streaming.weight_streaming`` with one token; the
published MeshGEMV is that of ``baselines.wafer_inference.mesh``.

The 25-point star stencil of Jacquelin et al. (SC22): a column of cells per PE.

Each step is 43 vector instructions of the equation and 17 that move wavelets of the neighbours,
each over all cells of the column, at one fp32 element per cycle (their table I and section VI).
"""

from __future__ import annotations

from pydantic import PositiveFloat, PositiveInt

from timing.hardware.fabric import FabricSpec
from timing.hardware.sourced import sourced
from timing.kernels.collectives import reduce
from timing.kernels.grid import Cycles, Grid
from timing.kernels.single_pe import axpy_cycles, elements_per_cycle, wavelets
from wsc.core.config import Config


class ProgramSpec(Config):
    """Programs of the SDK's examples and of pr0f3ss/SpMM_Cerebras."""

    summa_loop_cycles: PositiveInt = sourced(
        43, "published", "K0133: around each vector multiply-add of SUMMA"
    )
    summa_step_cycles: PositiveInt = sourced(120, "published", "K0134: before each step of SUMMA")
    broadcast_words_per_cycle: PositiveFloat = sourced(
        0.975, "published", "timing model, 2c: SUMMA's broadcasts, behind its arithmetic"
    )
    host_in_words_per_cycle: PositiveFloat = sourced(
        0.868, "published", "K0136: host to 4 x 4 PEs over one channel, simulator"
    )
    host_out_words_per_cycle: PositiveFloat = sourced(
        0.298, "published", "K0137: 4 x 4 PEs to host over one channel, simulator"
    )
    strided_fma_cycles: PositiveFloat = sourced(
        2.179,
        "fitted",
        "K0138 and K0141: per element whose result lies in one bank, read and written in turn, and "
        "in one case of eight in the bank of the other operand too: 2 1/8 expected",
    )
    map_column_cycles: PositiveFloat = sourced(
        1.075, "fitted", "K0123, K0127 and K0131: per column of a matrix-vector product"
    )
    map_start_cycles: PositiveFloat = sourced(
        37.3, "fitted", "K0123, K0127 and K0131: per matrix-vector product"
    )


PROGRAMS = ProgramSpec()


ROW_BYTES = 16
"""A column of the single-PE matrix fills whole 16-byte lines; SDK example single-tile-matvec."""


def single_pe_gemv(
    fabric: FabricSpec, rows: int, columns: int, dtype: str, programs: ProgramSpec = PROGRAMS
) -> Cycles:
    """``y = A x`` on one PE: a map over the columns, each a multiply-add of the padded column.

    Rows K0123 to K0131.
    """
    line = int(ROW_BYTES // (wavelets(fabric, 1, dtype) * fabric.wavelet_bytes))
    padded = -(-rows // line) * line
    return Cycles(
        compute=columns * padded / elements_per_cycle(fabric, "fma", dtype),
        setup=programs.map_start_cycles + programs.map_column_cycles * columns,
    )


def summa_multiply_add(
    fabric: FabricSpec, elements: int, dtype: str, programs: ProgramSpec = PROGRAMS
) -> Cycles:
    """One vector multiply-add in SUMMA's loop: elements, issue, and the loop around (K0133)."""
    return Cycles(
        compute=elements / elements_per_cycle(fabric, "fma", dtype),
        setup=fabric.triggered_cycles + programs.summa_loop_cycles,
    )


def summa(
    fabric: FabricSpec,
    side: int,
    tile: tuple[int, int, int],
    dtype: str,
    programs: ProgramSpec = PROGRAMS,
) -> Cycles:
    """``C = A B`` on ``side`` x ``side`` PEs, tiles of (rows, inner, columns) elements each.

    In each of ``side`` steps, tiles of A are broadcast along rows and tiles of B down columns, two
    colours at once, behind the products of the step before.
    """
    rows, inner, columns = tile
    products = summa_multiply_add(fabric, rows, dtype, programs) * (inner * columns)
    words = wavelets(fabric, max(rows, columns) * inner, dtype)
    step = products.at_least(words / programs.broadcast_words_per_cycle)
    return (step + Cycles(setup=programs.summa_step_cycles)) * side


def descriptor_gemm(
    fabric: FabricSpec,
    grid: tuple[int, int],
    rows: int,
    inner: int,
    columns: int,
    programs: ProgramSpec = PROGRAMS,
) -> Cycles:
    """Local products of fp32 C[columns, rows] = A[columns, inner] B[inner, rows] (K0138 to K0141).

    A lies over the grid, inner over its ``grid[0]`` columns, columns over its ``grid[1]`` rows. For
    each value of its part of B, a PE multiplies and adds one column of its tile of A to one of C.
    Both are strided by whole rows, multiples of eight words, so that all elements of a column lie
    in one bank of SRAM.
    """
    width, height = grid
    length = -(-columns // height)
    calls = -(-inner // width) * rows
    work = length / elements_per_cycle(fabric, "fma", "float32")
    element = Cycles(compute=work, memory=length * programs.strided_fma_cycles - work)
    return (element + Cycles(setup=fabric.vector_setup_cycles)) * calls


def gemv(grid: Grid, outputs: int, inputs: int, dtype: str) -> Cycles:
    """``A x`` with outputs down the columns of a grid and inputs along its rows.

    One map over a PE's inputs, an axpy of its outputs for each; then fp32 sums along the row.
    """
    fabric = grid.fabric
    local_outputs, local_inputs = grid.tokens(outputs), grid.features(inputs)
    products = axpy_cycles(fabric, local_outputs, dtype) * local_inputs
    sums = reduce(fabric, grid.hidden_pes, local_outputs)
    starts = 2 if grid.hidden_pes > 1 else 1
    return products + Cycles(fabric=sums, setup=fabric.vector_setup_cycles * starts)


ARITHMETIC_INSTRUCTIONS = 17 + 17 + 8 + 1  # FMUL, FADD, FMA, FSUB
FABRIC_INSTRUCTIONS = 17


def star_stencil(fabric: FabricSpec, cells: int) -> Cycles:
    """One time step over ``cells`` per PE; the size of the grid does not matter."""
    instructions = ARITHMETIC_INSTRUCTIONS + FABRIC_INSTRUCTIONS
    return Cycles(
        compute=ARITHMETIC_INSTRUCTIONS * cells / elements_per_cycle(fabric, "fma", "float32"),
        fabric=FABRIC_INSTRUCTIONS * cells * fabric.cycles_per_wavelet,
        setup=instructions * fabric.vector_setup_cycles,
    )
