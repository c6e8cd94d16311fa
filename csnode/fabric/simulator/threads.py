"""State of the threads of all PEs: instructions, agenda, and signals.

A signal raised in one cycle arrives in the next.
"""

from __future__ import annotations

import heapq

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.program import Program
from csnode.fabric.simulator.instruction_table import Op, Table
from csnode.fabric.simulator.network import NEVER

NO_THREADS = np.zeros(0, dtype=np.int64)


class Agenda:
    """Calendar of threads: which continue in which cycle."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._threads: dict[int, list[Array]] = {}

    @property
    def next_time(self) -> int:
        """Cycle of the first entry, or NEVER."""
        return self._times[0] if self._times else NEVER

    def add(self, threads: Array, cycle: int) -> None:
        """Schedule threads for a cycle."""
        if threads.size:
            if cycle not in self._threads:
                heapq.heappush(self._times, cycle)
                self._threads[cycle] = []
            self._threads[cycle].append(threads)

    def due(self, now: int) -> Array:
        """Remove and return the threads that are due by ``now``."""
        due: list[Array] = []
        while self._times and self._times[0] <= now:
            due += self._threads.pop(heapq.heappop(self._times))
        return np.concatenate(due) if due else np.zeros(0, dtype=np.int64)


class Threads:
    """Threads of all PEs, as arrays [threads].

    ``pe`` is the thread's PE and ``pc`` the row of the instruction table that it is at.
    ``is_issued`` tells whether that is a stream or Axpy that has begun, ``word`` how many of its
    words or weights are done. ``agenda`` holds the threads that continue by themselves.
    """

    def __init__(self, program: Program, table: Table) -> None:
        scripts = program.scripts
        starts = [
            np.full(script.pes.size, start)
            for script, start in zip(scripts, table.starts, strict=True)
        ]
        self.pe = np.concatenate([script.pes for script in scripts] or [NO_THREADS])
        self.pc = np.concatenate(starts or [NO_THREADS])
        self.word = np.zeros(self.pe.size, dtype=np.int32)
        self.is_issued = np.zeros(self.pe.size, dtype=np.bool_)
        self.several_per_pe = bool((np.bincount(self.pe, minlength=1) > 1).any())
        self.agenda = Agenda()
        self.agenda.add(np.arange(self.pe.size), 0)
        self._table = table
        self._claim = np.zeros(program.fabric.num_pes, dtype=np.int64)

    @property
    def unfinished(self) -> Array:
        """Threads that have not reached the end of their script."""
        return np.nonzero(self._table.op[self.pc] != Op.END)[0]

    def describe(self, thread: int) -> str:
        """Return PE and instruction of a thread, for errors."""
        instruction = self._table.instructions[self.pc[thread]]
        return f"PE {self.pe[thread]} at {instruction}, word {self.word[thread]}"

    def proceed(self, threads: Array, cycle: int) -> None:
        """Advance threads to the next instruction, at which they continue in a cycle."""
        self.pc[threads] += 1
        self.is_issued[threads] = False
        self.agenda.add(threads, cycle)

    def by_instruction(self, threads: Array) -> list[tuple[int, Array]]:
        """Group threads by the row of the table that they are at."""
        rows = self.pc[threads]
        return [(int(number), threads[rows == number]) for number in np.unique(rows)]

    def first_of_each_pe(self, threads: Array) -> Array:
        """Return whether each thread is the first of its PE among ``threads``, bool [threads]."""
        pes = self.pe[threads]
        rank = np.arange(threads.size)
        self._claim[pes[::-1]] = rank[::-1]
        return np.asarray(self._claim[pes] == rank)


class Signals:
    """Events of all PEs: pending signals, and the thread that waits for each.

    int32 count and int64 waiting thread (-1: none), both [events, PEs].
    """

    def __init__(self, table: Table, threads: Threads, num_pes: int) -> None:
        self._table, self._threads = table, threads
        self._count = np.zeros((_num_events(table), num_pes), dtype=np.int32)
        self._waiting = np.full(self._count.shape, -1, dtype=np.int64)
        self._raised: list[tuple[Array, Array]] = []

    def signal(self, threads: Array, now: int) -> None:
        """Raise the events that threads are at."""
        self._raised.append(self._events(threads))
        self._threads.proceed(threads, now + 1)

    def wait(self, threads: Array, now: int) -> None:
        """Consume a signal and continue at once; threads without a signal wait for the next."""
        events, pes = self._events(threads)
        signalled = self._count[events, pes] > 0
        np.subtract.at(self._count, (events[signalled], pes[signalled]), 1)
        self._threads.proceed(threads[signalled], now)
        self._waiting[events[~signalled], pes[~signalled]] = threads[~signalled]

    def deliver(self) -> Array:
        """Count the signals of the previous cycle and return the threads that wait for them."""
        if not self._raised:
            return NO_THREADS
        ready = []
        for events, pes in self._raised:
            np.add.at(self._count, (events, pes), 1)
            ready.append(self._waiting[events, pes])
            self._waiting[events, pes] = -1
        self._raised.clear()
        threads = np.unique(np.concatenate(ready))
        return threads[threads >= 0]

    def _events(self, threads: Array) -> tuple[Array, Array]:
        """Return event and PE of the instruction that each thread is at."""
        return self._table.count[self._threads.pc[threads]], self._threads.pe[threads]


def _num_events(table: Table) -> int:
    used = table.count[(table.op == Op.SIGNAL) | (table.op == Op.WAIT)]
    return int(used.max(initial=-1)) + 1
