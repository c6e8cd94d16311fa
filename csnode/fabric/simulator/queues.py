"""Routes of all colours, compiled to queues: where each waits, and where it may go next.

A router has one queue per colour and input that has a route. A queue's wavelets go, at each switch
position, to a fixed set of queues: those of neighbours, and the one in front of the PE's core.
Queues of routers come first, queues of cores behind them; number -1 is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.program import NUM_PORTS, ColourRoutes, Port
from csnode.fabric.region import Fabric
from wsc.core.errors import ApplianceCompilationError

_STEPS = {Port.NORTH: (-1, 0), Port.EAST: (0, 1), Port.SOUTH: (1, 0), Port.WEST: (0, -1)}


@dataclass(frozen=True)
class Queues:
    """All queues of a program.

    Per queue: ``pe``, ``switch`` (colour index x PEs + PE), ``link`` (the wire into it, PE x 6 +
    input, 5 for the core) and ``capacity`` in wavelets. Per ``wire`` (switch position x router
    queues + router queue) and copy: the queues it leads to, ``targets``, and the cycles to them,
    ``delays``, both [wires, copies].
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
        """Whether two queues may want the same wire in one cycle."""
        owner = np.full(int(self.link.max(initial=0)) + 1, -1, dtype=np.int32)
        wires, copies = np.nonzero(self.targets >= 0)
        links, queues = self.link[self.targets[wires, copies]], wires % max(self.num_router, 1)
        owner[links] = queues
        return bool((owner[links] != queues).any())

    def wire(self, queues: Array, positions: Array) -> Array:
        """Where router queues lead with the switches at ``positions``."""
        if self.targets.shape[0] == self.num_router:
            return queues
        return queues + positions.take(self.switch.take(queues)) * np.int64(self.num_router)


def compile_routes(fabric: Fabric, routes: Mapping[int, ColourRoutes]) -> Queues:
    """Number the queues and join them.

    Raises ApplianceCompilationError where a route leaves the region or meets a router without a
    route, since wavelets would be lost there.
    """
    numbers = _Numbers.of(fabric, routes)
    wires, targets, delays = _joints(fabric, numbers, routes)
    capacity = np.full(numbers.num_queues, fabric.spec.queue_wavelets, dtype=np.int32)
    np.maximum.at(capacity, targets, fabric.spec.queue_wavelets + delays)
    ramps = numbers.router[:, Port.RAMP]
    capacity[ramps[ramps >= 0]] += fabric.spec.ramp_cycles
    order = np.argsort(wires, kind="stable")
    wires, targets, delays = wires[order], targets[order], delays[order]
    copy = np.arange(wires.size) - np.searchsorted(wires, wires)
    positions = max((table.outputs.shape[0] for table in routes.values()), default=1)
    shape = (positions * numbers.num_router, int(copy.max(initial=0)) + 1)
    table_of_targets, table_of_delays = np.full(shape, -1), np.zeros(shape, dtype=np.int64)
    table_of_targets[wires, copy] = targets
    table_of_delays[wires, copy] = delays
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


def _joints(
    fabric: Fabric, numbers: _Numbers, routes: Mapping[int, ColourRoutes]
) -> tuple[Array, Array, Array]:
    """All pairs of a wire and a queue that it leads to, with the cycles between them."""
    joints = [np.zeros((3, 0), dtype=np.int64)]
    for index, (colour, table) in enumerate(routes.items()):
        for position, source, output, pes in _outputs(table):
            target, delay = _target(fabric, numbers, index, colour, source, output, pes)
            wires = numbers.router[index, source, pes] + position * numbers.num_router
            joints.append(np.stack([wires, target, delay]))
    wires, targets, delays = np.concatenate(joints, axis=1)
    return wires, targets, delays


@dataclass(frozen=True)
class _Numbers:
    """Which queue has which number: ``router[colour index, input, pe]``, ``core[index, pe]``."""

    router: Array
    core: Array
    num_router: int
    num_queues: int
    pe: Array
    switch: Array
    link: Array

    @staticmethod
    def of(fabric: Fabric, routes: Mapping[int, ColourRoutes]) -> _Numbers:
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
    """(switch position, input, output, the PEs with this route)."""
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
    """The queue behind an output, and the cycles to it."""
    spec = fabric.spec
    if output is Port.RAMP:
        return numbers.core[index, pes], np.full(pes.size, spec.ramp_cycles, dtype=np.int32)
    row_step, column_step = _STEPS[output]
    rows, columns = pes // fabric.columns + row_step, pes % fabric.columns + column_step
    inside = (rows >= 0) & (rows < fabric.rows) & (columns >= 0) & (columns < fabric.columns)
    _check_none(fabric, colour, output, pes[~inside], "route-leaves-region")
    target = numbers.router[index, output.opposite, rows * fabric.columns + columns]
    _check_none(fabric, colour, output, pes[target < 0], "route-without-next-hop")
    wire = fabric.south_cycles if row_step else fabric.east_cycles
    delay = wire[np.minimum(rows, rows - row_step), np.minimum(columns, columns - column_step)]
    turns = source is not Port.RAMP and (source - output) % 2 == 1
    return target, delay + (spec.turn_cycles if turns else 0)


def _check_none(fabric: Fabric, colour: int, output: Port, lossy_pes: Array, code: str) -> None:
    if lossy_pes.size:
        row, column = divmod(int(lossy_pes[0]), fabric.columns)
        raise ApplianceCompilationError(
            "a route must lead to a router of the region that routes its colour",
            code=code,
            where=f"colour {colour}, PE (row {row}, column {column}), output {output.name}",
            rule="every wavelet that leaves a router enters another one that routes its colour",
        )
