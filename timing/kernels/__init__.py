"""Closed-form costs of kernels on the wafer, in cycles, from how each is mapped onto the grid.

``single_pe`` and ``point_to_point`` are what one PE and one route cost; ``collectives`` is built on
routes, ``streaming`` (streamed weights, with ``sparsity``), ``resident`` and ``gemv`` (products of
what rests) and ``tensors`` on all of these; ``table`` has the form for each family of ops of a
captured graph. ``reduce_programs``, ``product_programs`` and ``stencil`` are published programs to
check them by, and ``hpdc`` the published formulas of collectives.
"""

from timing.kernels.grid import Cycles, Grid

__all__ = ["Cycles", "Grid"]
