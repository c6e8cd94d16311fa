"""Region of a wafer that a program runs on, and the largest region of a wafer with defects.

A logical grid is laid over the working PEs: a logical row takes the working PEs of one physical row
from west to east, and a row with too few is skipped. So the mesh is complete, as the wafer's
redundant PEs and links make it (Lie, Hot Chips 2019 and 2022), and a program never sees a defect.
It only sees longer wires between neighbours that are no longer adjacent (``wires``)::

    physical row 0   o o x o o      x = dead           logical row 0   0 1 3 4
    physical row 1   o x x x o      skipped
    physical row 2   o o o o o                         logical row 1   0 1 2 3

Closed forms and SRAM plans know only grids without gaps. ``working_wafer`` describes the largest
region as a smaller wafer with longer hops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from csnode.fabric.defects import Defects, random_defects, read_defects
from csnode.fabric.dtypes import Array
from csnode.fabric.wires import Wires
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.machine.hardware import DefectSpec, WaferSpec
from waferstream.machine.hardware.fabric import WSE2, FabricSpec


@dataclass(frozen=True)
class Fabric:
    """Region of ``rows`` x ``columns`` PEs in a row-major grid, on the working PEs of a wafer.

    Raises ApplianceResourceExhausted if the wafer, or its working part, is smaller.
    """

    rows: int
    columns: int
    spec: FabricSpec = WSE2
    defects: Defects = field(default_factory=Defects)
    keeps_history: bool = False
    """Whether a run keeps what every core and every wavelet did."""

    def __post_init__(self) -> None:
        spec = self.spec
        if not (0 < self.rows <= spec.rows and 0 < self.columns <= spec.columns):
            raise ApplianceResourceExhausted(
                "the region must lie on the wafer",
                code="region-outside-wafer",
                value=f"{self.rows} rows x {self.columns} columns",
                rule=f"1 x 1 to {spec.rows} rows x {spec.columns} columns of PEs",
            )
        _ = self.region  # raises for a region that does not fit

    @property
    def num_pes(self) -> int:
        """PEs of the region."""
        return self.rows * self.columns

    @cached_property
    def region(self) -> Region | None:
        """Physical PE of each PE of the region; None on a wafer without defects."""
        if not self.defects:
            return None
        return working_region(self.spec, self.defects, self.rows, self.columns)

    @cached_property
    def east_cycles(self) -> Array:
        """int32 [rows, columns - 1]: cycles between a router and the next one to the east."""
        if self.region is not None:
            return self.region.east_cycles
        return np.full((self.rows, self.columns - 1), self.spec.hop_cycles, dtype=np.int32)

    @cached_property
    def south_cycles(self) -> Array:
        """int32 [rows - 1, columns]: cycles between a router and the next one to the south."""
        if self.region is not None:
            return self.region.south_cycles
        return np.full((self.rows - 1, self.columns), self.spec.hop_cycles, dtype=np.int32)


@dataclass(frozen=True)
class Region:
    """Place of a logical grid on the wafer, int32 arrays.

    ``row`` and ``column`` [rows, columns]: the physical PE of each logical PE. ``east_cycles``
    [rows, columns - 1] and ``south_cycles`` [rows - 1, columns]: cycles between the routers of
    logical neighbours.
    """

    row: Array
    column: Array
    east_cycles: Array
    south_cycles: Array


def working_region(spec: FabricSpec, defects: Defects, rows: int, columns: int) -> Region:
    """Place ``rows`` x ``columns`` PEs on the first physical rows with enough working PEs.

    Working PEs that defects cut off from most others are not used. Raises
    ApplianceResourceExhausted when too few rows have enough.
    """
    wires = Wires(spec, defects)
    row, column = _working(spec, wires.connected, rows, columns)
    return Region(
        row=row,
        column=column,
        east_cycles=wires.cycles(row[:, :-1], column[:, :-1], row[:, 1:], column[:, 1:]),
        south_cycles=wires.cycles(row[:-1], column[:-1], row[1:], column[1:]),
    )


class RegionSize(NamedTuple):
    """Size of a region, and the mean hops between its neighbours, without detours."""

    rows: int
    columns: int
    mean_hops: float


def largest_region(spec: FabricSpec, defects: Defects) -> RegionSize:
    """Return the size of the largest region; raise ApplianceResourceExhausted if no PE works."""
    alive = Wires(spec, defects).connected
    working = np.sort(alive.sum(axis=1))[::-1]
    rows = int((working * np.arange(1, spec.rows + 1)).argmax()) + 1
    columns = int(working[rows - 1])
    if columns == 0:
        raise ApplianceResourceExhausted(
            "at least one PE of the wafer must work",
            code="no-working-pe",
            where="system.defects",
            value=f"{len(defects.pes)} dead PEs of {spec.num_pes}",
            rule="fewer dead PEs than PEs",
            remedy="describe a wafer with fewer defects in cluster.yaml",
        )
    row, column = _working(spec, alive, rows, columns)
    hops = [(abs(np.diff(row, axis=d)) + abs(np.diff(column, axis=d))).ravel() for d in (0, 1)]
    return RegionSize(rows, columns, float(np.concatenate([*hops, [1]]).mean()))


def _working(spec: FabricSpec, alive: Array, rows: int, columns: int) -> tuple[Array, Array]:
    """Return the physical row and column of each logical PE, int32 [rows, columns]."""
    working = alive.sum(axis=1)
    usable = np.nonzero(working >= columns)[0][:rows]
    if usable.size < rows:
        raise ApplianceResourceExhausted(
            f"the region must fit on the working PEs of the wafer; got {rows} x {columns}",
            code="region-larger-than-working",
            value=f"{usable.size} of {spec.rows} rows have {columns} working PEs, "
            f"{int((working == 0).sum())} rows have none",
            rule=f"{rows} rows are needed",
            remedy="choose a smaller region, or a wafer with fewer defects",
        )
    row = np.repeat(usable[:, None], columns, axis=1).astype(np.int32)
    column = np.stack([np.nonzero(alive[r])[0][:columns] for r in usable]).astype(np.int32)
    return row, column


def working_wafer(wafer: WaferSpec) -> WaferSpec:
    """Return the part of a wafer that programs see; the same wafer if it has no defects.

    Cores and SRAM shrink with the grid; a hop takes the rounded mean of the longer wires.

    Raises:
        ConfigError: The defect map cannot be read or names a PE outside the wafer.
        ApplianceResourceExhausted: No PE works.
    """
    if wafer.defects.is_none:
        return wafer
    whole = wafer.fabric
    rows, columns, mean_hops = largest_region(whole, _defects(wafer))
    hop_cycles = round(whole.hop_cycles * mean_hops)
    left = {"rows": rows, "columns": columns, "hop_cycles": hop_cycles}
    return wafer.model_copy(
        update={
            "fabric": whole.model_copy(update=left),
            "cores": wafer.cores * rows * columns // whole.num_pes,
            "sram_bytes": wafer.sram_bytes * rows * columns // whole.num_pes,
            "defects": DefectSpec(),
        }
    )


def _defects(wafer: WaferSpec) -> Defects:
    spec = wafer.defects
    if spec.map is not None:
        return read_defects(spec.map, wafer.fabric)
    return random_defects(wafer.fabric, spec.seed, spec.pe_yield, spec.link_yield)
