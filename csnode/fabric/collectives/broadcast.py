"""Broadcasts along a line and over a grid, on one colour: routers copy to their core and onward.

Cycles, from T_R per ramp, one per hop and one to consume (HPDC'24, timing model 2b), after the
set-up: ``words + P + 2 T_R`` on a line of P PEs, ``words + M + N - 2 + 2 T_R + 1`` on M x N.
"""

from __future__ import annotations

import numpy as np

from csnode.fabric.collectives.paths import Path
from csnode.fabric.instructions import Stream, receive, send
from csnode.fabric.memory import Slice
from csnode.fabric.program import Port, Program


def add_broadcast(program: Program, path: Path, values: Slice, colour: int) -> None:
    """Copy ``values`` of position 0 to all positions of every line of ``path``."""
    last = path.length - 1
    if last == 0:
        return
    program.route(colour, path.at(0), Port.RAMP, path.away[0])
    for position in range(1, last):
        toward, away = path.toward[position], path.away[position]
        program.route(colour, path.at(position), toward, away, Port.RAMP)
    program.route(colour, path.at(last), path.toward[last], Port.RAMP)
    program.do(path.at(0), send(values, colour))
    program.do(path.between(1, path.length), receive(values, colour))


def route_bus(program: Program, path: Path, colour: int) -> None:
    """Let any position send to all others on one colour; streams leave it in both directions.

    Positions may send in turn (``do_bus``): each begins when it has received the stream before,
    which by then has passed it in the direction in which it continues.
    """
    last = path.length - 1
    for position in range(path.length if last else 0):
        here, toward, away = path.at(position), path.toward[position], path.away[position]
        if position > 0:
            program.route(colour, here, Port.RAMP, toward)
            program.route(colour, here, toward, Port.RAMP, *([away] if position < last else []))
        if position < last:
            program.route(colour, here, Port.RAMP, away)
            program.route(colour, here, away, Port.RAMP, *([toward] if position > 0 else []))


def do_bus(
    program: Program,
    path: Path,
    root: int,
    values: Slice,
    into: Slice,
    colour: int,
    thread: int = 0,
) -> None:
    """Copy ``values`` of position ``root`` to ``into`` of all positions, over a bus.

    A line of one position does nothing.
    """
    if path.length > 1:
        program.do(path.at(root), Stream(values, store=into, send=colour), thread=thread)
        for region in (path.between(0, root), path.between(root + 1, path.length)):
            program.do(region, receive(into, colour), thread=thread)


def add_grid_broadcast(program: Program, values: Slice, colour: int) -> None:
    """Copy ``values`` of row 0, column 0 to all PEs: eastward in row 0, then southward."""
    rows, columns = program.fabric.rows, program.fabric.columns
    grid = np.arange(rows * columns).reshape(rows, columns)
    at_root, in_first_row = grid == 0, grid < columns
    source = np.where(at_root, Port.RAMP, np.where(in_first_row, Port.WEST, Port.NORTH))
    for port in (Port.RAMP, Port.WEST, Port.NORTH):
        here = source == port
        eastward = here & in_first_row
        eastward[:, -1] = False
        southward = here.copy()
        southward[-1] = False
        for region, output in ((eastward, Port.EAST), (southward, Port.SOUTH)):
            if region.any():
                program.route(colour, region, port, output)
    if (~at_root).any():
        for port in (Port.WEST, Port.NORTH):
            program.route(colour, source == port, port, Port.RAMP)
        program.do(at_root, send(values, colour))
        program.do(~at_root, receive(values, colour))
