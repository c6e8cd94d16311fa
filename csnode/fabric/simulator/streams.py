"""Ramps between routers and cores, and the streams that pass words through them.

In each cycle, every thread at a stream whose source and target are ready passes one word.
"""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array, combine_words
from csnode.fabric.memory import Memory
from csnode.fabric.simulator.datapath import Datapath
from csnode.fabric.simulator.instruction_table import MOVE, Table
from csnode.fabric.simulator.network import CONTROL, Network
from csnode.fabric.simulator.queues import Queues
from csnode.fabric.simulator.threads import NO_THREADS, Threads
from waferstream.core.errors import ApplianceCompilationError


class Ramps:
    """Queues in front of the cores, each with at most one listening thread.

    Counts the wavelets ``sent`` and ``received`` by cores.
    """

    def __init__(
        self, queues: Queues, network: Network, threads: Threads, ramp_cycles: int
    ) -> None:
        self.sent = 0
        self.received = 0
        self._queues, self._network, self._threads = queues, network, threads
        self._ramp_cycles = ramp_cycles
        self._listener = np.full(queues.pe.size - queues.num_router, -1, dtype=np.int64)

    def listen(self, threads: Array, colours: Array) -> None:
        """Assign the wavelets of one colour each to threads, until ``leave``."""
        ears = self._queues.ramp_down[colours, self._threads.pe[threads]] - self._queues.num_router
        taken = self._listener[ears] >= 0
        if taken.any() or np.unique(ears).size < ears.size:
            raise ApplianceCompilationError(
                "one thread of a PE must receive a colour at a time; got two",
                code="colour-received-twice",
                where=self._threads.describe(int(threads[taken.argmax()])),
                rule="one receiving thread per colour; let the other one wait for a signal",
            )
        self._listener[ears] = threads

    def leave(self, queues: Array) -> None:
        """Stop listening."""
        self._listener[queues - self._queues.num_router] = -1

    def arrivals(self, now: int) -> tuple[Array, Array]:
        """Return the queues whose first wavelet is ready and has a listener, and the listeners."""
        queues = self._network.arrivals(now)
        listeners = self._listener[queues - self._queues.num_router]
        ready = listeners >= 0
        return queues[ready], listeners[ready]

    def receive(self, queues: Array) -> tuple[Array, Array]:
        """Take the first wavelet of each queue; return values and flags."""
        self.received += queues.size
        return self._network.wavelets.pop(queues)

    def upward(self, threads: Array, colours: Array) -> Array:
        """Return the queue that each thread sends into on its colour; -1 for colour -1."""
        ramps = self._queues.ramp_up[colours, self._threads.pe[threads]]
        return np.where(colours >= 0, ramps, -1)

    def have_capacity(self, ramps: Array) -> Array:
        """Return whether one more wavelet fits into each queue; always true for -1."""
        return self._network.wavelets.has_capacity(ramps)

    def send(self, ramps: Array, values: Array, flags: Array, now: int) -> None:
        """Inject one wavelet each, computed in this cycle."""
        self._network.inject(ramps, values, flags, now + 1 + self._ramp_cycles)
        self.sent += ramps.size


class Streams:
    """Threads at streams: receivers wait at their ramp, all others are senders."""

    def __init__(
        self, table: Table, threads: Threads, ramps: Ramps, datapath: Datapath, memory: Memory
    ) -> None:
        self._table, self._threads, self._ramps = table, threads, ramps
        self._datapath = datapath
        self._words_per_pe = memory.words.shape[1]
        self._words = memory.words.reshape(-1)
        self._senders = NO_THREADS
        self._has_runs = bool(table.store_run.any())

    def add_senders(self, threads: Array) -> None:
        """Add threads at streams that receive nothing."""
        self._senders = np.concatenate([self._senders, threads])

    def serve(self, queues: Array, receivers: Array, now: int) -> bool:
        """Pass a word for each sender and receiver that can; return whether any did.

        ``receivers`` take theirs from ``queues``, senders from memory.
        """
        threads = np.concatenate([receivers, self._senders])
        if not threads.size:
            return False
        sources = np.concatenate([queues, np.full(self._senders.size, -1, dtype=queues.dtype)])
        ramps = self._ramps.upward(threads, self._table.send[self._threads.pc[threads]])
        going = self._ramps.have_capacity(ramps)
        if self._threads.several_per_pe:
            going &= self._share(threads, ramps >= 0, going, now)
        if not going.any():
            return False
        self._pass(threads[going], sources[going], ramps[going], now)
        return True

    def _share(self, threads: Array, sends: Array, going: Array, now: int) -> Array:
        """Allow one wavelet per cycle up each ramp; combining streams wait for a busy datapath."""
        allowed = np.ones(threads.size, dtype=np.bool_)
        contenders = np.nonzero(sends & going)[0]
        allowed[contenders] = self._threads.first_of_each_pe(threads[contenders])
        moves = self._table.kind[self._threads.pc[threads]] == MOVE
        return np.asarray(allowed & (moves | self._datapath.is_free(threads, now)))

    def _pass(self, threads: Array, sources: Array, ramps: Array, now: int) -> None:
        """Pass a word from memory and ``sources`` (-1: none) to memory and ``ramps`` (-1: none)."""
        row, pes = self._threads.pc[threads], self._threads.pe[threads]
        word = self._threads.word[threads]
        offset = word % self._table.period[row]
        value = self._combined(row, pes, offset, self._incoming(threads, sources), sources >= 0)
        self._store(row, pes, offset, value)
        word += 1
        self._threads.word[threads] = word
        is_last = word == self._table.words[row]
        leaving = ramps >= 0
        if leaving.any():
            flags = (self._table.last_flags[row] * is_last).astype(np.uint8)
            self._ramps.send(ramps[leaving], value[leaving], flags[leaving], now)
        self._datapath.note_words(pes, sources >= 0, leaving, now)
        self._close(threads[is_last], sources[is_last], now + 1)

    def _incoming(self, threads: Array, sources: Array) -> Array:
        value = np.zeros(threads.size, dtype=np.uint32)
        arriving = sources >= 0
        if arriving.any():
            value[arriving], flags = self._ramps.receive(sources[arriving])
            if (flags & CONTROL).any():
                thread = threads[arriving][(flags & CONTROL) != 0][0]
                raise ApplianceCompilationError(
                    "a control wavelet must end an axpy; got one in a stream",
                    code="control-in-stream",
                    where=self._threads.describe(int(thread)),
                    rule="a stream ends by its length, only an Axpy by a control wavelet",
                    remedy="send it with to_cores=False",
                )
        return value

    def _combined(
        self, row: Array, pes: Array, offset: Array, value: Array, arriving: Array
    ) -> Array:
        """Return the received word, the word in memory, or both combined."""
        operand = self._table.operand[row]
        has_operand = operand >= 0
        if not has_operand.any():
            return value
        address = pes * self._words_per_pe + operand + offset * self._table.operand_stride[row]
        stored = self._words[np.where(has_operand, address, 0)]
        kind = self._table.kind[row]
        result = np.where(arriving, value, stored)
        for number, (combine, dtype) in enumerate(self._table.kinds):
            same = kind == number
            if same.all():
                return combine_words(combine, value, stored, dtype)
            result[same] = combine_words(combine, value[same], stored[same], dtype)
        return result

    def _store(self, row: Array, pes: Array, offset: Array, value: Array) -> None:
        store = self._table.store[row]
        kept = store >= 0
        if kept.any():
            into = offset * self._table.store_stride[row]
            if self._has_runs:
                into = self._in_runs(row, offset, into)
            self._words[(pes * self._words_per_pe + store + into)[kept]] = value[kept]

    def _in_runs(self, row: Array, offset: Array, without: Array) -> Array:
        """Return the word offset of a store, ``without`` if it is not made of runs."""
        run = self._table.store_run[row]
        number, rest = np.divmod(offset, np.maximum(run, 1))
        return np.where(run > 0, number * self._table.store_pitch[row] + rest, without)

    def _close(self, threads: Array, sources: Array, cycle: int) -> None:
        """End streams that have passed their last word."""
        if threads.size:
            self._ramps.leave(sources[sources >= 0])
            self._threads.proceed(threads, cycle)
            if (sources < 0).any():
                self._senders = self._senders[self._threads.is_issued[self._senders]]
