"""Closed forms of kernel costs on the wafer, in cycles, derived from each kernel's mapping.

``single_pe`` has the cost of vector instructions on one PE, ``grid`` how tensors are spread over
PEs, and ``collectives`` broadcasts and reduces. ``streaming`` (products with streamed weights),
``resident`` (products of resident operands) and ``tensors`` (everything else) build on them.
``op_costs`` selects the closed form of each op of a captured graph.

``validation.closed_forms`` compares them with the fabric simulator, and
``validation.published_programs`` has programs whose measurements test the parts.
"""

from waferstream.machine.kernels.grid import Cycles, Grid

__all__ = ["Cycles", "Grid"]
