"""Tiles of matrices on a grid of PEs, and the result of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.simulator.execution import Outcome
from waferstream.core.errors import ApplianceCompilationError


@dataclass(frozen=True)
class Result:
    """Values of a kernel (fp32), and the run that computed them."""

    values: Array
    outcome: Outcome

    @property
    def cycles(self) -> int:
        """Cycles from the issue of the first instruction to the end of the last."""
        return self.outcome.cycles


def split(matrix: Array, rows: int, columns: int, *, transposed: bool = False) -> Array:
    """Split a matrix [m, n] into tiles [rows, columns, m n / (rows columns)], row by row.

    ``transposed`` tiles are stored column by column. Raises ApplianceCompilationError when the
    matrix does not divide evenly.
    """
    m, n = matrix.shape
    if m % rows or n % columns:
        raise ApplianceCompilationError(
            "the sides of a matrix must be multiples of the sides of the grid of PEs",
            code="matrix-not-divisible",
            value=f"{m} x {n} on {rows} x {columns} PEs",
            rule="every PE holds a tile of one size",
            remedy="pad the matrix with zeros",
        )
    order = (0, 2, 3, 1) if transposed else (0, 2, 1, 3)
    tiles = np.asarray(matrix).reshape(rows, m // rows, columns, n // columns).transpose(order)
    return tiles.reshape(rows, columns, -1)


def join(tiles: Array, height: int, width: int, *, transposed: bool = False) -> Array:
    """Return the matrix that ``split`` cut into tiles of ``height`` x ``width``."""
    rows, columns, _ = tiles.shape
    if transposed:
        parts = tiles.reshape(rows, columns, width, height).transpose(0, 3, 1, 2)
    else:
        parts = tiles.reshape(rows, columns, height, width).transpose(0, 2, 1, 3)
    return parts.reshape(rows * height, columns * width)
