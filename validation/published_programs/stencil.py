"""The 25-point star stencil of Jacquelin et al. (SC22): a column of cells per PE.

Each step is 43 vector instructions of the equation and 17 that move wavelets of the neighbours,
each over all cells of the column, at one fp32 element per cycle (their table I and section VI).
"""

from __future__ import annotations

from timing.hardware.fabric import FabricSpec
from timing.kernels.cycles import Cycles
from timing.kernels.single_pe import elements_per_cycle

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
