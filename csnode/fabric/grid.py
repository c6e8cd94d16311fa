"""The region of a wafer that a program runs on, and how far its PEs are from each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from csnode.fabric.defects import Defects
from csnode.fabric.dtypes import Array
from csnode.fabric.placement import Placement, place
from timing.hardware.fabric import WSE2, FabricSpec
from wsc.core.errors import ApplianceResourceExhausted


@dataclass(frozen=True)
class Fabric:
    """``rows`` x ``columns`` PEs in a row-major grid, on the working PEs of a wafer.

    Raises ApplianceResourceExhausted if the wafer, or what of it works, is smaller than the region.
    """

    rows: int
    columns: int
    spec: FabricSpec = WSE2
    defects: Defects = field(default_factory=Defects)

    def __post_init__(self) -> None:
        spec = self.spec
        if not (0 < self.rows <= spec.rows and 0 < self.columns <= spec.columns):
            raise ApplianceResourceExhausted(
                "the region is no part of the wafer",
                value=f"{self.rows} rows x {self.columns} columns",
                rule=f"1 x 1 to {spec.rows} rows x {spec.columns} columns of PEs",
            )
        _ = self.placement  # an impossible placement is refused here

    @property
    def num_pes(self) -> int:
        """PEs of the region."""
        return self.rows * self.columns

    @cached_property
    def placement(self) -> Placement | None:
        """Which physical PE stands for each of the region; None on a wafer without defects."""
        if not self.defects:
            return None
        return place(self.spec, self.defects, self.rows, self.columns)

    @cached_property
    def east_cycles(self) -> Array:
        """int32 [rows, columns - 1]: cycles between a router and the next one to the east."""
        if self.placement is not None:
            return self.placement.east_cycles
        return np.full((self.rows, self.columns - 1), self.spec.hop_cycles, dtype=np.int32)

    @cached_property
    def south_cycles(self) -> Array:
        """int32 [rows - 1, columns]: cycles between a router and the next one to the south."""
        if self.placement is not None:
            return self.placement.south_cycles
        return np.full((self.rows - 1, self.columns), self.spec.hop_cycles, dtype=np.int32)
