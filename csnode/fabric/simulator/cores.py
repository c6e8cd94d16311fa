"""Cores of all PEs: each cycle, threads at streams pass a word, others wait for their time.

A thread is in exactly one place: on the agenda (it continues at a known cycle), at a ramp (it waits
for wavelets), among the senders, or waiting for a signal. So the cost of a cycle grows with the
work to do, not with the number of PEs.
"""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.memory import Memory
from csnode.fabric.program import Program
from csnode.fabric.simulator.datapath import Datapath
from csnode.fabric.simulator.instruction_table import Op, Table
from csnode.fabric.simulator.network import CONTROL, Network
from csnode.fabric.simulator.queues import Queues
from csnode.fabric.simulator.streams import Ramps, Streams
from csnode.fabric.simulator.threads import Signals, Threads


class Cores:
    """Threads of all PEs, with the parts of the core that they use."""

    def __init__(
        self, program: Program, table: Table, queues: Queues, network: Network, memory: Memory
    ) -> None:
        spec, num_pes = program.fabric.spec, program.fabric.num_pes
        self.finish_cycles = np.zeros(num_pes, dtype=np.int64)
        self.threads = Threads(program, table)
        self.ramps = Ramps(queues, network, self.threads, spec.ramp_cycles)
        self.datapath = Datapath(spec, table, self.threads, memory)
        self._spec, self._table = spec, table
        self._streams = Streams(table, self.threads, self.ramps, self.datapath, memory)
        self._signals = Signals(table, self.threads, num_pes)
        self._has_axpy = Op.AXPY in table.op

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
                    self._set_up(here, now + self._spec.vector_setup_cycles)
                case Op.AXPY:
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

    def _set_up(self, threads: Array, time: int) -> None:
        self.threads.word[threads] = 0
        self.threads.is_issued[threads] = True
        self.threads.agenda.add(threads, time)

    def _open(self, threads: Array) -> None:
        """Listen to the colour, or send, after the set-up."""
        colours = self._table.receive[self.threads.pc[threads]]
        listening = colours >= 0
        self.ramps.listen(threads[listening], colours[listening])
        self._streams.add_senders(threads[~listening])

    def _serve(self, now: int) -> bool:
        """Serve weights of an Axpy first, then words of streams."""
        queues, listeners = self.ramps.arrivals(now)
        moved = False
        if self._has_axpy:
            is_axpy = self._table.op[self.threads.pc[listeners]] == Op.AXPY
            moved = self._take_weights(queues[is_axpy], listeners[is_axpy], now)
            queues, listeners = queues[~is_axpy], listeners[~is_axpy]
        return self._streams.serve(queues, listeners, now) or moved

    def _take_weights(self, queues: Array, threads: Array, now: int) -> bool:
        """Take a weight for each Axpy whose datapath is free; a control wavelet ends it."""
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
