"""Matrix-vector products with a resident matrix, spread over a grid.

With streamed weights, a matrix-vector product is ``streaming.weight_streaming`` with one token; the
published MeshGEMV is that of ``baselines.wafer_inference.mesh``.
"""

from __future__ import annotations

from timing.kernels.collectives import reduce
from timing.kernels.cycles import Cycles
from timing.kernels.grid import Grid
from timing.kernels.single_pe import axpy_cycles


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
