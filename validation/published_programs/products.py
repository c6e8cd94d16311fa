"""Cost of published programs for products and stencils.

The SDK's matvec and SUMMA and a student's GEMM are loops over vector instructions; their constants
(``ProgramSpec``) come on top of the costs of PE and fabric. ``gemv`` is a matrix-vector product
with a resident matrix, and ``star_stencil`` the 25-point stencil of Jacquelin et al. (SC22).
"""

from __future__ import annotations

from pydantic import PositiveFloat, PositiveInt

from waferstream.core.config import Config
from waferstream.machine.hardware.fabric import FabricSpec
from waferstream.machine.hardware.sourced import sourced
from waferstream.machine.kernels.collectives import reduce
from waferstream.machine.kernels.grid import Cycles, Grid
from waferstream.machine.kernels.single_pe import axpy_cycles, elements_per_cycle, wavelets

ROW_BYTES = 16
"""A column of the single-PE matrix fills whole 16-byte lines; SDK example single-tile-matvec."""
ARITHMETIC_INSTRUCTIONS = 17 + 17 + 8 + 1  # FMUL, FADD, FMA, FSUB
FABRIC_INSTRUCTIONS = 17


class ProgramSpec(Config):
    """Constants of programs of the SDK's examples and of pr0f3ss/SpMM_Cerebras."""

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
        2.125,
        "derived",
        "per element whose result lies in one bank, read and written in turn: 2 cycles, and one "
        "more in one case of eight, where the other operand lies in that bank, too",
    )
    map_column_cycles: PositiveFloat = sourced(
        1.1, "derived", "timing model, 2a: per column of a matrix-vector product of one PE"
    )
    map_start_cycles: PositiveFloat = sourced(
        35, "derived", "timing model, 2a: per matrix-vector product of one PE"
    )


PROGRAMS = ProgramSpec()


def single_pe_gemv(
    fabric: FabricSpec, rows: int, columns: int, dtype: str, programs: ProgramSpec = PROGRAMS
) -> Cycles:
    """Return the cost of ``y = A x`` on one PE: a multiply-add of each padded column.

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
    """Return the cost of one multiply-add in SUMMA's loop: elements, issue, and loop (K0133)."""
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
    """Return the cost of ``C = A B`` on ``side`` x ``side`` PEs.

    In each of ``side`` steps, tiles of A are broadcast along rows and tiles of B down columns, on
    two colours at once, behind the products of the step before.

    Args:
        fabric: The machine.
        side: PEs of a side.
        tile: Rows, inner length and columns of the tiles of a PE.
        dtype: Type of the elements.
        programs: Constants of the program.
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
    """Return the cost of fp32 C[columns, rows] = A[columns, inner] B[inner, rows] (K0138 to K0141).

    A lies over the grid, inner over its ``grid[0]`` columns, columns over its ``grid[1]`` rows. For
    each value of its part of B, a PE multiplies one column of its tile of A and adds it to one of
    C. Both are strided by whole rows, multiples of eight words, so that all elements of a column
    lie in one bank of SRAM.
    """
    width, height = grid
    length = -(-columns // height)
    calls = -(-inner // width) * rows
    work = length / elements_per_cycle(fabric, "fma", "float32")
    element = Cycles(compute=work, memory=length * programs.strided_fma_cycles - work)
    return (element + Cycles(setup=fabric.vector_setup_cycles)) * calls


def gemv(grid: Grid, outputs: int, inputs: int, dtype: str) -> Cycles:
    """Return the cost of ``A x`` with outputs down the columns of a grid and inputs along its rows.

    One map over a PE's inputs, with an axpy over its outputs for each; then fp32 sums along the
    row. With streamed weights, the product is
    ``waferstream.machine.kernels.streaming.weight_streaming`` with one token; the published
    MeshGEMV is in ``waferstream.machine.regions.mesh``.
    """
    fabric = grid.fabric
    local_outputs, local_inputs = grid.tokens(outputs), grid.features(inputs)
    products = axpy_cycles(fabric, local_outputs, dtype) * local_inputs
    sums = reduce(fabric, grid.hidden_pes, local_outputs)
    starts = 2 if grid.hidden_pes > 1 else 1
    return products + Cycles(fabric=sums, setup=fabric.vector_setup_cycles * starts)


def star_stencil(fabric: FabricSpec, cells: int) -> Cycles:
    """Return the cost of one time step over a column of ``cells`` per PE.

    43 vector instructions of the equation and 17 that move wavelets of the neighbours, each over
    all cells of the column, at one fp32 element per cycle (table I and section VI of Jacquelin et
    al.). The size of the grid does not matter.
    """
    instructions = ARITHMETIC_INSTRUCTIONS + FABRIC_INSTRUCTIONS
    return Cycles(
        compute=ARITHMETIC_INSTRUCTIONS * cells / elements_per_cycle(fabric, "fma", "float32"),
        fabric=FABRIC_INSTRUCTIONS * cells * fabric.cycles_per_wavelet,
        setup=instructions * fabric.vector_setup_cycles,
    )
