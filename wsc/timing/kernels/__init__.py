"""Closed-form costs of kernels on the wafer, in cycles, from how each is mapped onto the grid.

``single_pe`` and ``point_to_point`` are what one PE and one route cost; ``collectives`` is built on
routes, ``gemm`` and ``tensors`` on both. ``table.KERNELS`` has the form for each family of
ops.
"""

from wsc.timing.kernels.cycles import Cycles
from wsc.timing.kernels.grid import Grid

__all__ = ["Cycles", "Grid"]
