"""Run a program on a fabric: the cores of all PEs, and the loop over cycles.

A thread is in exactly one place: on the agenda (it continues at a known cycle), at a ramp (it waits
for wavelets), among the senders, or waiting for a signal. So the cost of a cycle grows with the
work to do, not with the number of PEs. Idle cycles are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from csnode.fabric.dtypes import Array
from csnode.fabric.memory import Layout, Memory
from csnode.fabric.program import Program
from csnode.fabric.simulator.activity import History, Recorder
from csnode.fabric.simulator.datapath import Datapath
from csnode.fabric.simulator.instruction_table import Op, Table, compile_table
from csnode.fabric.simulator.network import CONTROL, NEVER, Network
from csnode.fabric.simulator.queues import Queues, compile_routes
from csnode.fabric.simulator.streams import Ramps, Streams
from csnode.fabric.simulator.threads import Signals, Threads
from waferstream.core.errors import ApplianceCompilationError, ApplianceDeadlockError


@dataclass(frozen=True)
class Outcome:
    """Result of a run.

    ``cycles`` until the last thread ended, from the issue of the first instruction (a program's
    start takes ``program_start_cycles`` more). int64 [rows, columns]: ``busy_cycles`` in which a
    core worked, and ``finish_cycles`` when it ended. Wavelets ``sent`` by cores, ``received`` by
    cores (each copy of a multicast counts), ``filtered`` controls; ``hops`` between routers.
    ``history`` where the fabric keeps it.
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
    history: History | None = None

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
    recorder = Recorder(queues, program.colours, fabric.num_pes) if fabric.keeps_history else None
    network = Network(queues, fabric.spec, fabric.num_pes, recorder)
    memory = Memory(fabric.num_pes, program.layout.used_bytes)
    _fill(program, memory, data)
    cores = Cores(program, compile_table(program), queues, network, memory, recorder)
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
        history=recorder.history() if recorder is not None else None,
    )


def _check_ramps(program: Program, queues: Queues) -> None:
    """Check that every PE that uses a colour has a route from or to its core."""
    index = {colour: number for number, colour in enumerate(program.colours)}
    for script in program.scripts:
        for name, ramps in (("send", queues.ramp_up), ("receive", queues.ramp_down)):
            for colour in {getattr(x, name, None) for x in script.instructions}:
                if colour is None:
                    continue
                lost = script.pes[ramps[index[colour]][script.pes] < 0]
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


class Cores:
    """Threads of all PEs, with the parts of the core that they use."""

    def __init__(
        self,
        program: Program,
        table: Table,
        queues: Queues,
        network: Network,
        memory: Memory,
        recorder: Recorder | None,
    ) -> None:
        spec, num_pes = program.fabric.spec, program.fabric.num_pes
        self.finish_cycles = np.zeros(num_pes, dtype=np.int64)
        self.threads = Threads(program, table)
        self.ramps = Ramps(queues, network, self.threads, spec.ramp_cycles)
        self.datapath = Datapath(spec, table, self.threads, memory, recorder)
        self._spec, self._table = spec, table
        self._streams = Streams(table, self.threads, self.ramps, self.datapath, memory)
        self._signals = Signals(table, self.threads, num_pes)
        self._has_triggered = Op.TRIGGERED in table.op

    @property
    def next_time(self) -> int:
        """Cycle in which the next thread continues by itself, or NEVER."""
        return self.threads.agenda.next_time

    def step(self, now: int) -> bool:
        """Do what can be done in this cycle; return whether anything was done."""
        agenda = self.threads.agenda
        due = np.concatenate([self._signals.deliver(), agenda.due(now)])
        any_due = bool(due.size)
        while due.size:
            is_issued = self.threads.is_issued[due]
            self._open(due[is_issued])
            self._issue(due[~is_issued], now)
            due = agenda.due(now)  # a thread whose wait ended continues in this cycle
        return self._serve(now) or any_due

    def _issue(self, threads: Array, now: int) -> None:
        """Begin the instructions that threads are at."""
        ops = self._table.op[self.threads.pc[threads]]
        for op in np.unique(ops):
            here = threads[ops == op]
            match op:
                case Op.STREAM:
                    continues = self._table.continues[self.threads.pc[here]] > 0
                    self._set_up(here[continues], now)
                    self._set_up(here[~continues], now + self._spec.vector_setup_cycles)
                case Op.TRIGGERED:
                    self.datapath.clear_sums(here)
                    self._set_up(here, now + 1)
                case Op.VECTOR:
                    self.datapath.compute(here, now)
                case Op.SIGNAL:
                    self._signals.signal(here, now)
                case Op.WAIT:
                    self._signals.wait(here, now)
                case Op.DELAY:
                    for number, same in self.threads.by_instruction(here):
                        self.threads.proceed(same, now + int(self._table.count[number]))
                case _:
                    np.maximum.at(self.finish_cycles, self.threads.pe[here], now)

    def _set_up(self, threads: Array, cycle: int) -> None:
        self.threads.word[threads] = 0
        self.threads.is_issued[threads] = True
        self.threads.agenda.add(threads, cycle)

    def _open(self, threads: Array) -> None:
        """Listen to the colour, or send, after the set-up."""
        colours = self._table.receive[self.threads.pc[threads]]
        listening = colours >= 0
        self.ramps.listen(threads[listening], colours[listening])
        self._streams.add_senders(threads[~listening])

    def _serve(self, now: int) -> bool:
        """Serve wavelets that trigger work first, then words of streams."""
        queues, listeners = self.ramps.arrivals(now)
        moved = False
        if self._has_triggered:
            triggered = self._table.op[self.threads.pc[listeners]] == Op.TRIGGERED
            moved = self._take_weights(queues[triggered], listeners[triggered], now)
            queues, listeners = queues[~triggered], listeners[~triggered]
        return self._streams.serve(queues, listeners, now) or moved

    def _take_weights(self, queues: Array, threads: Array, now: int) -> bool:
        """Take a weight for each task whose datapath is free; a control wavelet ends it."""
        free = self.datapath.is_free(threads, now)
        queues, threads = queues[free], threads[free]
        if not threads.size:
            return False
        weights, flags = self.ramps.receive(queues)
        self.ramps.leave(queues)
        is_end = (flags & CONTROL) != 0
        self.threads.proceed(threads[is_end], now + 1)
        self.datapath.multiply(threads[~is_end], weights[~is_end], now)
        return True
