"""Matrix-vector products with a resident matrix, on one PE or spread over a grid.

With streamed weights, a matrix-vector product is ``gemm.weight_streaming`` with one token; the
published MeshGEMV is that of ``wsc.timing.regions.mesh``.
"""

from __future__ import annotations

from wsc.timing.hardware.fabric import FabricSpec
from wsc.timing.hardware.programs import PROGRAMS, ProgramSpec
from wsc.timing.kernels.collectives import reduce
from wsc.timing.kernels.cycles import Cycles
from wsc.timing.kernels.grid import Grid
from wsc.timing.kernels.single_pe import axpy_cycles, elements_per_cycle, wavelets

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
