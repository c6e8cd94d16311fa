"""Where a logical grid lies on a wafer with dead PEs and links.

Rows are shifted past their dead PEs: a logical row takes the working PEs of one physical row from
west to east, and a row with too few is left out. So the mesh is whole again, as the wafer's
redundant PEs and links make it (Lie, Hot Chips 2019 and 2022), and a program never sees a defect.
What it sees is distance: wires between neighbours that are no longer adjacent (``wires``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from csnode.fabric.defects import Defects
from csnode.fabric.dtypes import Array
from csnode.fabric.wires import Wires
from timing.hardware.fabric import FabricSpec
from wsc.core.errors import ApplianceResourceExhausted


@dataclass(frozen=True)
class Placement:
    """int32 arrays: the physical ``row`` and ``column`` of each logical PE [rows, columns].

    ``east_cycles`` [rows, columns - 1] and ``south_cycles`` [rows - 1, columns]: cycles between
    the routers of logical neighbours.
    """

    row: Array
    column: Array
    east_cycles: Array
    south_cycles: Array


def place(spec: FabricSpec, defects: Defects, rows: int, columns: int) -> Placement:
    """Place ``rows`` x ``columns`` PEs on the first physical rows that have enough working ones.

    Working PEs that defects cut off from most others are not used. Raises
    ApplianceResourceExhausted when too few rows have enough.
    """
    wires = Wires(spec, defects)
    row, column = _working(spec, wires.connected, rows, columns)
    return Placement(
        row=row,
        column=column,
        east_cycles=wires.cycles(row[:, :-1], column[:, :-1], row[:, 1:], column[:, 1:]),
        south_cycles=wires.cycles(row[:-1], column[:-1], row[1:], column[1:]),
    )


class Region(NamedTuple):
    """A grid that can be placed, and the mean hops between its neighbours, without detours."""

    rows: int
    columns: int
    mean_hops: float


def largest_region(spec: FabricSpec, defects: Defects) -> Region:
    """The largest grid that can be placed.

    Raises ApplianceResourceExhausted if no PE works.
    """
    alive = Wires(spec, defects).connected
    working = np.sort(alive.sum(axis=1))[::-1]
    rows = int((working * np.arange(1, spec.rows + 1)).argmax()) + 1
    columns = int(working[rows - 1])
    if columns == 0:
        raise ApplianceResourceExhausted(
            "nothing of the wafer works",
            where="system.defects",
            value=f"{len(defects.pes)} dead PEs of {spec.num_pes}",
            rule="at least one PE works",
            remedy="describe a wafer with fewer defects in cluster.yaml",
        )
    row, column = _working(spec, alive, rows, columns)
    hops = [(abs(np.diff(row, axis=d)) + abs(np.diff(column, axis=d))).ravel() for d in (0, 1)]
    return Region(rows, columns, float(np.concatenate([*hops, [1]]).mean()))


def _working(spec: FabricSpec, alive: Array, rows: int, columns: int) -> tuple[Array, Array]:
    """Physical row and column of each logical PE, int32 [rows, columns]."""
    working = alive.sum(axis=1)
    usable = np.nonzero(working >= columns)[0][:rows]
    if usable.size < rows:
        raise ApplianceResourceExhausted(
            "the region does not fit on what works of the wafer",
            value=f"{usable.size} of {spec.rows} rows have {columns} working PEs, "
            f"{int((working == 0).sum())} rows have none",
            rule=f"{rows} rows are needed",
            remedy="choose a smaller region, or a wafer with fewer defects",
        )
    row = np.repeat(usable[:, None], columns, axis=1).astype(np.int32)
    column = np.stack([np.nonzero(alive[r])[0][:columns] for r in usable]).astype(np.int32)
    return row, column
