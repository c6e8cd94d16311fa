"""Lines of PEs along which collectives run: their order, and the ports between neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.program import Port
from csnode.fabric.region import Fabric


@dataclass(frozen=True)
class Path:
    """Lines side by side, all of one shape.

    ``pes`` int64 [lines, positions] are row-major numbers, position 0 the root. ``toward[i]`` is
    the port from position i to i - 1, ``away[i]`` the port to i + 1::

        root 0 <--toward-- 1 --away--> 2 ...
    """

    pes: Array
    columns: int
    toward: tuple[Port, ...]
    away: tuple[Port, ...]

    @property
    def length(self) -> int:
        """Positions of a line."""
        return int(self.pes.shape[1])

    def at(self, positions: int | Array) -> tuple[Array, Array]:
        """Return the selection (rows, columns) of the PEs at a position, or at several."""
        return np.divmod(self.pes[:, positions], self.columns)

    def between(self, start: int, stop: int) -> tuple[Array, Array]:
        """Return the selection of the PEs at positions ``start`` to ``stop - 1``."""
        return np.divmod(self.pes[:, start:stop].ravel(), self.columns)


def rows(fabric: Fabric) -> Path:
    """Return every row, its root in column 0."""
    return _straight(fabric, _grid(fabric), Port.WEST)


def first_column(fabric: Fabric) -> Path:
    """Return column 0, its root in row 0."""
    return _straight(fabric, _grid(fabric)[:, :1].T, Port.NORTH)


def columns(fabric: Fabric) -> Path:
    """Return every column, its root in row 0."""
    return _straight(fabric, _grid(fabric).T, Port.NORTH)


def snake(fabric: Fabric) -> Path:
    """Return all PEs in one line: row 0 eastward, row 1 westward, and so on."""
    grid = _grid(fabric).copy()
    grid[1::2] = grid[1::2, ::-1]
    line = grid.ravel()
    away = [_direction(step, fabric.columns) for step in np.diff(line).tolist()]
    toward = [Port.RAMP, *(port.opposite for port in away)]
    return Path(line[None], fabric.columns, tuple(toward), (*away, Port.RAMP))


def _direction(step: int, columns: int) -> Port:
    """Return the port to the PE whose number is ``step`` higher."""
    if step == columns:
        return Port.SOUTH
    return Port.EAST if step > 0 else Port.WEST


def _grid(fabric: Fabric) -> Array:
    return np.arange(fabric.num_pes).reshape(fabric.rows, fabric.columns)


def _straight(fabric: Fabric, pes: Array, toward: Port) -> Path:
    length = pes.shape[1]
    return Path(pes, fabric.columns, (toward,) * length, (toward.opposite,) * length)
