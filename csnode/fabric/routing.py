"""Ports of a router, and the routes of a colour: where a wavelet that enters leaves again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from csnode.fabric.dtypes import Array


class Port(IntEnum):
    """Where a wavelet enters or leaves a router. Row 0 is north, column 0 west."""

    NORTH = 0
    EAST = 1
    SOUTH = 2
    WEST = 3
    RAMP = 4

    @property
    def opposite(self) -> Port:
        """Where a wavelet that leaves here enters the neighbour."""
        return Port((self + 2) % 4)


NUM_PORTS = len(Port)


@dataclass(frozen=True)
class ColourRoutes:
    """The routes of one colour: ``outputs[position, input, pe]`` is a set of ports, one bit each.

    ``last`` is the last switch position of each PE, ``ring`` whether the first one follows it.
    """

    outputs: Array
    last: Array
    ring: Array
