"""Matrix-vector products with a resident matrix on one PE.

With streamed weights, a matrix-vector product is ``gemm.weight_streaming`` with one token; with a
matrix spread over a square of PEs, it is MeshGEMV of ``wsc.timing.regions.mesh``.
"""

from __future__ import annotations

from wsc.timing.hardware.fabric import FabricSpec
from wsc.timing.hardware.programs import PROGRAMS, ProgramSpec
from wsc.timing.kernels.cycles import Cycles
from wsc.timing.kernels.single_pe import elements_per_cycle, wavelets

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
