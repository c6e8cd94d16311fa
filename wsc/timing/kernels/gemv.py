"""Matrix-vector products with a resident matrix, on one PE and on a square of PEs.

With streamed weights, a matrix-vector product is ``gemm.weight_streaming`` with one token.
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


def mesh_gemv(
    fabric: FabricSpec, side: int, rows: int, columns: int, dtype: str, levels: int = 2
) -> Cycles:
    """``y = A x`` on ``side`` x ``side`` PEs, the result on all PEs of a column (MeshGEMV).

    He et al., WaferLLM, OSDI'25: a local product, then an all-reduce by a tree of ``levels``
    levels with fan-in ``side ** (1 / levels)`` towards the middle, and back. Its hops are as many
    as the side is long; each of its ``levels * side ** (1 / levels) / 2`` stages is an addition
    that starts anew, and each level, like the way back, carries the whole tile of y.
    """
    tile_rows, tile_columns = -(-rows // side), -(-columns // side)
    product = Cycles(
        compute=tile_columns * tile_rows / elements_per_cycle(fabric, "fma", dtype),
        setup=tile_columns * fabric.triggered_cycles + fabric.vector_setup_cycles,
    )
    if side == 1:
        return product
    stages = levels * side ** (1 / levels) / 2
    carried = (levels + 1) * wavelets(fabric, tile_rows, dtype) * fabric.cycles_per_wavelet
    return product + Cycles(
        fabric=fabric.hop_cycles * side + carried, setup=stages * fabric.vector_setup_cycles
    )
