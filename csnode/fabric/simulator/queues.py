"""Compile the routes of all colours into queues: where wavelets wait, and where they go next.

A router has one queue per colour and input that has a route, and a core has one per colour that it
may receive. At each switch position, the wavelets of a router's queue go to a fixed set of queues:
those of neighbouring routers, and the one in front of the PE's own core.

Index spaces, all from 0; -1 stands for "none" in every array of indices:

    pe        row-major number of a PE: row x columns + column
    colour    place of a colour among the colours with routes (not the colour's number)
    port      input or output of a router, a ``Port``: 0 to 4
    queue     first the R queues of routers, then the C queues in front of cores
    switch    colour x PEs + pe: one switch per router and colour
    link      pe x 6 + input: the physical wire into a queue; input 5 is the way into the core
    hop       position x R + queue: a router's queue while its switch is at a position

A switch position selects the row of ``targets`` and ``delays``::

    queue q, switch at position 1  ->  hop = R + q  ->  targets[hop] = [queue east, queue of core]
                                                        delays[hop]  = [hop cycles, ramp cycles]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.program import NUM_PORTS, ColourRoutes, Port
from csnode.fabric.region import Fabric
from waferstream.core.errors import ApplianceCompilationError

_STEPS = {Port.NORTH: (-1, 0), Port.EAST: (0, 1), Port.SOUTH: (1, 0), Port.WEST: (0, -1)}


@dataclass(frozen=True)
class Queues:
    """All queues of a program; index spaces as at the top of this file.

    ================  =====================  ========================================
    ``pe``            int64 [queues]         PE of a queue
    ``switch``        int64 [queues]         switch of a queue
    ``link``          int64 [queues]         wire into a queue
    ``capacity``      int32 [queues]         wavelets that fit
    ``targets``       int64 [hops, fan-out]  queues that a wavelet enters, all at once
    ``delays``        int64 [hops, fan-out]  cycles on the way to each target
    ``ramp_up``       int64 [colours, PEs]   queue that a core sends into
    ``ramp_down``     int64 [colours, PEs]   queue that a core receives from
    ``last_position`` int8 [switches]        last switch position
    ``ring``          bool [switches]        whether position 0 follows the last one
    ================  =====================  ========================================
    """

    num_router: int
    pe: Array
    switch: Array
    link: Array
    capacity: Array
    targets: Array
    delays: Array
    ramp_up: Array
    ramp_down: Array
    last_position: Array
    ring: Array

    @property
    def shared_links(self) -> bool:
        """Whether two queues may need the same wire in one cycle."""
        owner = np.full(int(self.link.max(initial=0)) + 1, -1, dtype=np.int32)
        hops, copies = np.nonzero(self.targets >= 0)
        links, queues = self.link[self.targets[hops, copies]], hops % max(self.num_router, 1)
        owner[links] = queues
        return bool((owner[links] != queues).any())

    def hop(self, queues: Array, positions: Array) -> Array:
        """Return the hops of router queues with all switches at ``positions``."""
        if self.targets.shape[0] == self.num_router:
            return queues
        return queues + positions.take(self.switch.take(queues)) * np.int64(self.num_router)


def compile_routes(fabric: Fabric, routes: Mapping[int, ColourRoutes]) -> Queues:
    """Assign numbers to the queues and connect them.

    Raises:
        ApplianceCompilationError: A route leaves the region or meets a router without a route, so
            wavelets would be lost there.
    """
    numbers = _Numbers.of(fabric, routes)
    hops, targets, delays = _connections(fabric, numbers, routes)
    # One more slot per cycle of wire: an undisturbed stream never waits for capacity.
    capacity = np.full(numbers.num_queues, fabric.spec.queue_wavelets, dtype=np.int32)
    np.maximum.at(capacity, targets, fabric.spec.queue_wavelets + delays)
    ramps = numbers.router[:, Port.RAMP]
    capacity[ramps[ramps >= 0]] += fabric.spec.ramp_cycles
    # Connections of one hop become the columns of its row: [hops, fan-out].
    order = np.argsort(hops, kind="stable")
    hops, targets, delays = hops[order], targets[order], delays[order]
    copy = np.arange(hops.size) - np.searchsorted(hops, hops)
    positions = max((table.outputs.shape[0] for table in routes.values()), default=1)
    shape = (positions * numbers.num_router, int(copy.max(initial=0)) + 1)
    table_of_targets, table_of_delays = np.full(shape, -1), np.zeros(shape, dtype=np.int64)
    table_of_targets[hops, copy] = targets
    table_of_delays[hops, copy] = delays
    return Queues(
        num_router=numbers.num_router,
        pe=numbers.pe,
        switch=numbers.switch,
        link=numbers.link,
        capacity=capacity,
        targets=table_of_targets,
        delays=table_of_delays,
        ramp_up=ramps,
        ramp_down=numbers.core,
        last_position=np.concatenate([t.last for t in routes.values()] or [np.zeros(0, np.int8)]),
        ring=np.concatenate([t.ring for t in routes.values()] or [np.zeros(0, np.bool_)]),
    )


def _connections(
    fabric: Fabric, numbers: _Numbers, routes: Mapping[int, ColourRoutes]
) -> tuple[Array, Array, Array]:
    """Return hop, target and delay [connections] of every connection, one per copy of a wavelet."""
    found = [np.zeros((3, 0), dtype=np.int64)]
    for index, (colour, table) in enumerate(routes.items()):
        for position, source, output, pes in _outputs(table):
            target, delay = _target(fabric, numbers, index, colour, source, output, pes)
            hops = numbers.router[index, source, pes] + position * numbers.num_router
            found.append(np.stack([hops, target, delay]))
    hops, targets, delays = np.concatenate(found, axis=1)
    return hops, targets, delays


@dataclass(frozen=True)
class _Numbers:
    """Numbers of the queues.

    ``router`` [colours, ports, PEs] and ``core`` [colours, PEs] hold queues; ``pe``, ``switch`` and
    ``link`` [queues] are those of ``Queues``.
    """

    router: Array
    core: Array
    num_router: int
    num_queues: int
    pe: Array
    switch: Array
    link: Array

    @staticmethod
    def of(fabric: Fabric, routes: Mapping[int, ColourRoutes]) -> _Numbers:
        """Assign numbers to inputs with a route and to cores where a route ends."""
        num_pes = fabric.num_pes
        outputs = [table.outputs for table in routes.values()]
        has_input = np.zeros((len(outputs), NUM_PORTS, num_pes), dtype=np.bool_)
        has_core = np.zeros((len(outputs), num_pes), dtype=np.bool_)
        for index, table in enumerate(outputs):
            has_input[index] = table.any(axis=0)
            has_core[index] = (table & (1 << Port.RAMP)).any(axis=(0, 1))
        router = np.full(has_input.shape, -1, dtype=np.int64)
        core = np.full(has_core.shape, -1, dtype=np.int64)
        num_router = int(has_input.sum())
        num_queues = num_router + int(has_core.sum())
        router[has_input] = np.arange(num_router)
        core[has_core] = np.arange(num_router, num_queues)
        colour, port, pe = np.nonzero(has_input)
        core_colour, core_pe = np.nonzero(has_core)
        pes = np.concatenate([pe, core_pe])
        colours = np.concatenate([colour, core_colour])
        ports = np.concatenate([port, np.full(core_pe.size, NUM_PORTS)])
        return _Numbers(
            router=router,
            core=core,
            num_router=num_router,
            num_queues=num_queues,
            pe=pes,
            switch=colours * num_pes + pes,
            link=(pes * (NUM_PORTS + 1) + ports),
        )


def _outputs(table: ColourRoutes) -> Iterator[tuple[int, Port, Port, Array]]:
    """Yield (switch position, input, output, PEs that have this route)."""
    for position in range(table.outputs.shape[0]):
        for source in Port:
            ports = table.outputs[position, source]
            for output in Port:
                pes = np.nonzero(ports & (1 << output))[0]
                if pes.size:
                    yield position, source, output, pes


def _target(
    fabric: Fabric,
    numbers: _Numbers,
    index: int,
    colour: int,
    source: Port,
    output: Port,
    pes: Array,
) -> tuple[Array, Array]:
    """Return the queue behind an output of each PE, and the cycles to it."""
    spec = fabric.spec
    if output is Port.RAMP:
        return numbers.core[index, pes], np.full(pes.size, spec.ramp_cycles, dtype=np.int32)
    row_step, column_step = _STEPS[output]
    rows, columns = pes // fabric.columns + row_step, pes % fabric.columns + column_step
    inside = (rows >= 0) & (rows < fabric.rows) & (columns >= 0) & (columns < fabric.columns)
    _check_none_lost(fabric, colour, output, pes[~inside], "route-leaves-region")
    target = numbers.router[index, output.opposite, rows * fabric.columns + columns]
    _check_none_lost(fabric, colour, output, pes[target < 0], "route-without-next-hop")
    wire = fabric.south_cycles if row_step else fabric.east_cycles
    delay = wire[np.minimum(rows, rows - row_step), np.minimum(columns, columns - column_step)]
    turns = source is not Port.RAMP and (source - output) % 2 == 1
    return target, delay + (spec.turn_cycles if turns else 0)


def _check_none_lost(
    fabric: Fabric, colour: int, output: Port, losing_pes: Array, code: str
) -> None:
    if losing_pes.size:
        row, column = divmod(int(losing_pes[0]), fabric.columns)
        raise ApplianceCompilationError(
            "a route must lead to a router of the region that routes its colour",
            code=code,
            where=f"colour {colour}, PE (row {row}, column {column}), output {output.name}",
            rule="every wavelet that leaves a router enters another one that routes its colour",
        )
