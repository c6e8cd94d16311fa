"""Signals between the threads of a PE: raised in one cycle, heard in the next."""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.simulator.table import Op, Table
from csnode.fabric.simulator.threads import NO_THREADS, Threads


class Signals:
    """Events of all PEs: how often each was signalled, and the thread that waits for it."""

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
        """Take off a signal and go on at once; threads without one wait for the next."""
        events, pes = self._events(threads)
        signalled = self._count[events, pes] > 0
        np.subtract.at(self._count, (events[signalled], pes[signalled]), 1)
        self._threads.proceed(threads[signalled], now)
        self._waiting[events[~signalled], pes[~signalled]] = threads[~signalled]

    def hear(self) -> Array:
        """Count the signals of the cycle before; threads that wait for them look again."""
        if not self._raised:
            return NO_THREADS
        heard = []
        for events, pes in self._raised:
            np.add.at(self._count, (events, pes), 1)
            heard.append(self._waiting[events, pes])
            self._waiting[events, pes] = -1
        self._raised.clear()
        threads = np.unique(np.concatenate(heard))
        return threads[threads >= 0]

    def _events(self, threads: Array) -> tuple[Array, Array]:
        """Event and PE of the instruction that each thread is at."""
        return self._table.count[self._threads.pc[threads]], self._threads.pe[threads]


def _num_events(table: Table) -> int:
    used = table.count[(table.op == Op.SIGNAL) | (table.op == Op.WAIT)]
    return int(used.max(initial=-1)) + 1
