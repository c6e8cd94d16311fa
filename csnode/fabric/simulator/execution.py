"""Run a program on a fabric cycle by cycle, skipping idle cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from csnode.fabric.dtypes import Array
from csnode.fabric.memory import Layout, Memory
from csnode.fabric.program import Program
from csnode.fabric.simulator.cores import Cores
from csnode.fabric.simulator.instruction_table import compile_table
from csnode.fabric.simulator.network import NEVER, Network
from csnode.fabric.simulator.queues import Queues, compile_routes
from wsc.core.errors import ApplianceCompilationError, ApplianceDeadlockError


@dataclass(frozen=True)
class Outcome:
    """Result of a run.

    ``cycles`` until the last thread ended, from the issue of the first instruction (a program's
    start takes ``program_start_cycles`` more). int64 [rows, columns]: ``busy_cycles`` in which a
    core worked, and ``finish_cycles`` when it ended. Wavelets ``sent`` by cores, ``received`` by
    cores (each copy of a multicast counts), ``filtered`` controls; ``hops`` between routers.
    """

    cycles: int
    busy_cycles: Array
    finish_cycles: Array
    sent: int
    received: int
    filtered: int
    hops: int
    layout: Layout
    memory: Memory

    def read(self, name: str) -> Array:
        """Return an array of every PE, fp32 [rows, columns, length]."""
        rows, columns = self.busy_cycles.shape
        array = self.layout.arrays[name]
        return self.memory.read(np.arange(rows * columns), array.whole).reshape(rows, columns, -1)


def run(program: Program, data: Mapping[str, ArrayLike]) -> Outcome:
    """Fill arrays with ``data`` and run until all threads have ended.

    Args:
        program: Routes, arrays and instructions.
        data: Values by name of an array; they broadcast to [rows, columns, length].

    Raises:
        ApplianceCompilationError: The program loses wavelets, or data have no array.
        ApplianceDeadlockError: Threads wait forever, or wavelets are left over.
    """
    fabric = program.fabric
    queues = compile_routes(fabric, program.routes)
    _check_ramps(program, queues)
    network = Network(queues, fabric.spec, fabric.num_pes)
    memory = Memory(fabric.num_pes, program.layout.used_bytes)
    _fill(program, memory, data)
    cores = Cores(program, compile_table(program), queues, network, memory)
    now = 0
    while now < NEVER:
        moved = network.step(now)
        moved = cores.step(now) or moved
        now = now + 1 if moved else min(cores.next_time, network.next_ready(now))
    _check_quiet(cores, network)
    shape = (fabric.rows, fabric.columns)
    return Outcome(
        cycles=int(cores.finish_cycles.max(initial=0)),
        busy_cycles=cores.datapath.busy_cycles.reshape(shape),
        finish_cycles=cores.finish_cycles.reshape(shape),
        sent=cores.ramps.sent,
        received=cores.ramps.received,
        filtered=network.filtered,
        hops=network.hops,
        layout=program.layout,
        memory=memory,
    )


def _check_ramps(program: Program, queues: Queues) -> None:
    """Check that every PE that uses a colour has a route from or to its core."""
    index = {colour: number for number, colour in enumerate(program.colours)}
    for role in program.roles:
        for name, ramps in (("send", queues.ramp_up), ("receive", queues.ramp_down)):
            for colour in {getattr(x, name, None) for x in role.instructions}:
                if colour is None:
                    continue
                lost = role.pes[ramps[index[colour]][role.pes] < 0]
                if lost.size:
                    row, column = divmod(int(lost[0]), program.fabric.columns)
                    raise ApplianceCompilationError(
                        f"a PE must have a route at its ramp to {name} on a colour",
                        code=f"{name}-without-ramp-route",
                        where=f"PE (row {row}, column {column})",
                        value=f"colour {colour}",
                        rule="a route of its router begins (to send) or ends (to receive) at RAMP",
                    )


def _fill(program: Program, memory: Memory, data: Mapping[str, ArrayLike]) -> None:
    fabric = program.fabric
    everywhere = np.arange(fabric.num_pes)
    for name, values in data.items():
        array = program.layout.arrays.get(name)
        if array is None:
            raise ApplianceCompilationError(
                f"data must be for an array of the program; got {name!r}",
                code="unknown-array",
                rule=f"one of {', '.join(program.layout.arrays)}",
            )
        shape = (fabric.rows, fabric.columns, array.length)
        try:
            filled = np.broadcast_to(np.asarray(values, dtype=np.float32), shape)
        except ValueError as error:
            raise ApplianceCompilationError(
                f"the data of array {name!r} must broadcast to {shape}",
                code="array-data-shape",
                value=np.shape(values),
                rule="a shape that broadcasts to [rows, columns, length]",
            ) from error
        memory.write(everywhere, array.whole, filled.reshape(fabric.num_pes, -1))


def _check_quiet(cores: Cores, network: Network) -> None:
    stuck = cores.threads.unfinished
    if stuck.size:
        raise ApplianceDeadlockError(
            f"every thread must end; got {stuck.size} that wait forever",
            code="threads-wait-forever",
            where="; ".join(cores.threads.describe(int(thread)) for thread in stuck[:3]),
            value=f"{network.wavelets.num_waiting} wavelets wait in routers",
            rule="every receive has a sender, and queues drain",
        )
    if network.wavelets.num_waiting:
        raise ApplianceDeadlockError(
            "every wavelet must be received before the last thread ends",
            code="wavelets-left-over",
            value=f"{network.wavelets.num_waiting} wavelets",
            rule="every wavelet that reaches a core is received",
        )
