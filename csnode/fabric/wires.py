"""Latency of wires between logical neighbours on a wafer with defects.

Neighbours of a logical grid that are not adjacent are joined by the shortest path of working
routers and links, with as many hops and turns. Such a wire is a spare one: it costs latency and
takes no bandwidth from the routers that it passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from csnode.fabric.defects import Coordinate, Defects
from csnode.fabric.dtypes import Array
from waferstream.machine.hardware.fabric import FabricSpec

_STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))


class Wires:
    """Shortest paths over working routers and links.

    ``connected``, bool [rows, columns]: the largest set of working PEs that reach each other.
    """

    def __init__(self, spec: FabricSpec, defects: Defects) -> None:
        alive = defects.alive(spec)
        self._spec = spec
        self._east = alive[:, :-1] & alive[:, 1:]
        self._south = alive[:-1] & alive[1:]
        for (row, column), (other_row, _) in defects.links:
            (self._east if row == other_row else self._south)[row, column] = False
        self.connected = self._largest_part(alive)
        self._dead_east = _running_count(~self._east, axis=1)
        self._dead_south = _running_count(~self._south, axis=0)

    def cycles(self, row: Array, column: Array, to_row: Array, to_column: Array) -> Array:
        """Return the cycles between pairs of routers, element by element, int32.

        Paths with at most one turn are tested for all pairs at once. The few pairs without such a
        path are searched one by one.
        """
        along_then_down = self._open_row(row, column, to_column)
        along_then_down &= self._open_column(to_column, row, to_row)
        down_then_along = self._open_column(column, row, to_row)
        down_then_along &= self._open_row(to_row, column, to_column)
        hops = abs(to_row - row) + abs(to_column - column)
        turns = ((row != to_row) & (column != to_column)).astype(np.int32)
        cycles: Array = hops * self._spec.hop_cycles + turns * self._spec.turn_cycles
        for index in zip(*np.nonzero(~(along_then_down | down_then_along)), strict=True):
            start = (int(row[index]), int(column[index]))
            cycles[index] = self._search(start, (int(to_row[index]), int(to_column[index])))
        return cycles

    def _largest_part(self, alive: Array) -> Array:
        """Return the largest connected set of working PEs; of equal ones the northernmost.

        Every PE takes the smallest number in its run of a row, in its run of a column, and of the
        PE with the number it took, until all connected PEs have the same number.
        """
        rows, columns = _runs(self._east, alive.shape), _runs(self._south.T, alive.T.shape)
        part: Array = np.arange(alive.size).reshape(alive.shape)
        before = np.zeros_like(alive)
        while not np.array_equal(part, before):
            before = part
            part = _least_of_runs(_least_of_runs(part, rows).T, columns).T
            part = part.ravel()[part]
        sizes = np.bincount(part[alive], minlength=alive.size)
        largest: Array = alive & (part == sizes.argmax())
        return largest

    def _open_row(self, row: Array, column: Array, to_column: Array) -> Array:
        west, east = np.minimum(column, to_column), np.maximum(column, to_column)
        return np.asarray(self._dead_east[row, west] == self._dead_east[row, east])

    def _open_column(self, column: Array, row: Array, to_row: Array) -> Array:
        north, south = np.minimum(row, to_row), np.maximum(row, to_row)
        return np.asarray(self._dead_south[north, column] == self._dead_south[south, column])

    def _search(self, start: Coordinate, end: Coordinate) -> int:
        """Return the fewest cycles of any path: breadth first over (router, direction), by cost."""
        hop, turn = self._spec.hop_cycles, self._spec.turn_cycles
        best: dict[tuple[Coordinate, int], int] = {(start, -1): 0}
        frontier = deque([(start, -1)])
        arrived: int | None = None
        while frontier:
            place, heading = frontier.popleft()
            spent = best[place, heading]
            if arrived is not None and spent >= arrived:
                continue
            if place == end:
                arrived = spent
                continue
            for direction, neighbour in self._neighbours(place):
                turns = heading >= 0 and direction != heading
                cost = spent + hop + (turn if turns else 0)
                if cost < best.get((neighbour, direction), cost + 1):
                    best[neighbour, direction] = cost
                    frontier.append((neighbour, direction))
        assert arrived is not None, "both lie in one connected part"
        return arrived

    def _neighbours(self, place: Coordinate) -> Iterator[tuple[int, Coordinate]]:
        row, column = place
        for direction, (row_step, column_step) in enumerate(_STEPS):
            other = (row + row_step, column + column_step)
            north_west = min(place, other)
            side = self._south if row_step else self._east
            inside = 0 <= other[0] < self._spec.rows and 0 <= other[1] < self._spec.columns
            if inside and side[north_west]:
                yield direction, other


def _runs(links: Array, shape: Coordinate) -> Array:
    """Return the number of the run of each PE [rows, columns]; ``links`` join the PEs of a row."""
    starts = np.ones(shape, dtype=np.bool_)
    starts[:, 1:] = ~links
    return (np.cumsum(starts) - 1).reshape(shape)


def _least_of_runs(values: Array, runs: Array) -> Array:
    """Return at every PE the smallest value in its run."""
    starts = np.flatnonzero(np.diff(runs.ravel(), prepend=-1))
    least: Array = np.minimum.reduceat(values.ravel(), starts)[runs]
    return least


def _running_count(flags: Array, axis: int) -> Array:
    """Return the number of flags before each index; one element longer than ``flags``."""
    before = [(1, 0) if side == axis else (0, 0) for side in range(flags.ndim)]
    return np.pad(np.cumsum(flags, axis=axis, dtype=np.int32), before)
