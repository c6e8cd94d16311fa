"""Broadcast, reduce and all-reduce on lines and grids of PEs.

``add_*``, ``route_*`` and ``do_*`` extend a program; the functions of ``programs`` build a program
that is nothing but one collective.
"""

from csnode.fabric.collectives import paths
from csnode.fabric.collectives.broadcast import add_broadcast, add_grid_broadcast, do_bus, route_bus
from csnode.fabric.collectives.programs import (
    all_reduce,
    all_reduce_2d,
    broadcast,
    broadcast_2d,
    reduce,
    reduce_2d,
    ring_all_reduce,
    snake_reduce,
)
from csnode.fabric.collectives.reduce import add_reduce, do_reduce, route_reduce
from csnode.fabric.collectives.ring import Ring, add_ring_all_reduce, do_ring_sum
from csnode.fabric.collectives.trees import (
    Tree,
    auto_generated,
    binomial,
    chain,
    star,
    two_phase,
)

__all__ = [
    "Ring",
    "Tree",
    "add_broadcast",
    "add_grid_broadcast",
    "add_reduce",
    "add_ring_all_reduce",
    "all_reduce",
    "all_reduce_2d",
    "auto_generated",
    "binomial",
    "broadcast",
    "broadcast_2d",
    "chain",
    "do_bus",
    "do_reduce",
    "do_ring_sum",
    "paths",
    "reduce",
    "reduce_2d",
    "ring_all_reduce",
    "route_bus",
    "route_reduce",
    "snake_reduce",
    "star",
    "two_phase",
]
