"""Published programs for products: the SDK's matvec and SUMMA, a loop over vector instructions."""

from __future__ import annotations

from timing.hardware.fabric import FabricSpec
from timing.kernels.cycles import Cycles
from timing.kernels.single_pe import elements_per_cycle, wavelets
from validation.published_programs.hardware import PROGRAMS, ProgramSpec

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
