"""All cores in one cycle: threads at streams take a word each, others wait for their time.

A thread is known to the rest of the machine in exactly one place: on the agenda (it goes on at a
known cycle), as the listener of a queue (it waits for wavelets), among the senders, or waiting for
a signal. So a cycle costs as much as there is to do, not as there are PEs.
"""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array, Dtype, combine_words
from csnode.fabric.instructions import Axpy, Gather, Gemv, Vector
from csnode.fabric.memory import Memory
from csnode.fabric.program import Program
from csnode.fabric.simulator.agenda import Agenda
from csnode.fabric.simulator.network import CONTROL, Network
from csnode.fabric.simulator.queues import Queues
from csnode.fabric.simulator.table import MOVE, Op, Table
from csnode.fabric.simulator.vector import add_weighted, compute, op_cycles, weight_cycles
from wsc.core.errors import ApplianceCompilationError

_NONE = np.zeros(0, dtype=np.int64)


class Cores:
    """Threads of all PEs, their memory, and what they have done."""

    def __init__(
        self, program: Program, table: Table, queues: Queues, network: Network, memory: Memory
    ) -> None:
        spec, num_pes = program.fabric.spec, program.fabric.num_pes
        self.busy_cycles = np.zeros(num_pes, dtype=np.int64)
        self.finish_cycles = np.zeros(num_pes, dtype=np.int64)
        self.sent = 0
        self.received = 0
        self._spec, self._table, self._network, self._memory = spec, table, network, memory
        self._queues = queues
        self._words_per_pe = memory.words.shape[1]
        self._flat = memory.words.reshape(-1)
        self._pe = np.concatenate([role.pes for role in program.roles] or [_NONE])
        starts = [
            np.full(role.pes.size, start)
            for role, start in zip(program.roles, table.starts, strict=True)
        ]
        self._pc = np.concatenate(starts or [_NONE])
        self._step_of = np.zeros(self._pe.size, dtype=np.int32)
        self._is_open = np.zeros(self._pe.size, dtype=np.bool_)
        self._listener = np.full(queues.pe.size - queues.num_router, -1, dtype=np.int64)
        self._senders = _NONE
        self._raised: list[tuple[Array, Array]] = []
        self._signals = np.zeros((_num_events(table), num_pes), dtype=np.int32)
        self._waiting = np.full(self._signals.shape, -1, dtype=np.int64)
        self._datapath_free = np.zeros(num_pes, dtype=np.int64)
        self._claim = np.zeros(num_pes, dtype=np.int64)
        self._many_threads = bool((np.bincount(self._pe, minlength=1) > 1).any())
        self._has_axpy = Op.AXPY in table.op
        self._has_runs = bool(table.store_run.any())
        self._agenda = Agenda()
        self._agenda.add(np.arange(self._pe.size), 0)

    @property
    def next_time(self) -> int:
        """When the next thread goes on by itself, or NEVER."""
        return self._agenda.next_time

    @property
    def unfinished(self) -> Array:
        """Threads that have not reached the end of their role."""
        return np.nonzero(self._table.op[self._pc] != Op.END)[0]

    def describe(self, thread: int) -> str:
        """PE and instruction of a thread, for errors."""
        instruction = self._table.instructions[self._pc[thread]]
        return f"PE {self._pe[thread]} at {instruction}, word {self._step_of[thread]}"

    def step(self, now: int) -> bool:
        """Do what can be done in this cycle; whether anything was."""
        due = np.concatenate([self._hear_signals(), self._agenda.due(now)])
        any_due = bool(due.size)
        while due.size:
            self._open(due[self._is_open[due]])
            self._issue(due[~self._is_open[due]], now)
            due = self._agenda.due(now)  # whose wait was over go on at once
        return self._serve(now) or any_due

    # Instructions that begin

    def _issue(self, threads: Array, now: int) -> None:
        ops = self._table.op[self._pc[threads]]
        for op in np.unique(ops):
            here = threads[ops == op]
            match op:
                case Op.STREAM | Op.AXPY:
                    self._step_of[here] = 0
                    self._is_open[here] = True
                    if op == Op.AXPY:
                        self._clear_sums(here)
                    setup = self._spec.vector_setup_cycles if op == Op.STREAM else 1
                    self._agenda.add(here, now + setup)
                case Op.VECTOR:
                    self._compute(here, now)
                case Op.SIGNAL:
                    self._raised.append((self._table.count[self._pc[here]], self._pe[here]))
                    self._proceed(here, now + 1)
                case Op.WAIT:
                    self._wait(here, now)
                case Op.DELAY:
                    for number, same in self._by_instruction(here):
                        self._proceed(same, now + int(self._table.count[number]))
                case _:
                    pes = self._pe[here]
                    np.maximum.at(self.finish_cycles, pes, now)

    def _proceed(self, threads: Array, time: int) -> None:
        """Go on to the next instruction at ``time``."""
        self._pc[threads] += 1
        self._is_open[threads] = False
        self._agenda.add(threads, time)

    def _hear_signals(self) -> Array:
        """Count the signals of the cycle before; threads that wait for them look again."""
        if not self._raised:
            return _NONE
        heard = []
        for events, pes in self._raised:
            np.add.at(self._signals, (events, pes), 1)
            heard.append(self._waiting[events, pes])
            self._waiting[events, pes] = -1
        self._raised.clear()
        threads = np.unique(np.concatenate(heard))
        return threads[threads >= 0]

    def _wait(self, threads: Array, now: int) -> None:
        events = self._table.count[self._pc[threads]]
        pes = self._pe[threads]
        signalled = self._signals[events, pes] > 0
        np.subtract.at(self._signals, (events[signalled], pes[signalled]), 1)
        self._proceed(threads[signalled], now)
        self._waiting[events[~signalled], pes[~signalled]] = threads[~signalled]

    def _compute(self, threads: Array, now: int) -> None:
        free = self._datapath_free[self._pe[threads]]
        for time in np.unique(free[free > now]):
            self._agenda.add(threads[free == time], int(time))
        threads = self._one_per_pe(threads[free <= now], now + 1)
        for number, same in self._by_instruction(threads):
            op = self._table.instructions[number]
            assert isinstance(op, Vector | Gemv | Gather)
            compute(self._memory, self._pe[same], op)
            cycles = op_cycles(op, self._spec)
            self._occupy(self._pe[same], now, cycles)
            self._proceed(same, now + cycles)

    def _by_instruction(self, threads: Array) -> list[tuple[int, Array]]:
        """Rows of the table that threads are at, and those that are there, before any goes on."""
        rows = self._pc[threads]
        return [(int(number), threads[rows == number]) for number in np.unique(rows)]

    def _one_per_pe(self, threads: Array, later: int) -> Array:
        """The first thread of each PE; the others try again ``later``."""
        if not self._many_threads:
            return threads
        first = self._first_per_pe(threads)
        self._agenda.add(threads[~first], later)
        return threads[first]

    def _first_per_pe(self, threads: Array) -> Array:
        pes = self._pe[threads]
        rank = np.arange(threads.size)
        self._claim[pes[::-1]] = rank[::-1]
        return np.asarray(self._claim[pes] == rank)

    def _occupy(self, pes: Array, now: int, cycles: int) -> None:
        self.busy_cycles[pes] += cycles
        self._datapath_free[pes] = now + cycles

    def _open(self, threads: Array) -> None:
        """The set-up is over: listen to the colour, or send."""
        colours = self._table.receive[self._pc[threads]]
        listening = colours >= 0
        queues = self._queues.ramp_down[colours[listening], self._pe[threads[listening]]]
        ears = queues - self._queues.num_router
        taken = self._listener[ears] >= 0
        if taken.any() or np.unique(ears).size < ears.size:
            raise ApplianceCompilationError(
                "two threads of a PE receive one colour at the same time",
                where=self.describe(int(threads[listening][taken.argmax()])),
                rule="one thread receives a colour; let the other one wait for a signal",
            )
        self._listener[ears] = threads[listening]
        self._senders = np.concatenate([self._senders, threads[~listening]])

    # Words that pass

    def _serve(self, now: int) -> bool:
        queues = self._network.arrivals(now)
        listeners = self._listener[queues - self._queues.num_router]
        queues, listeners = queues[listeners >= 0], listeners[listeners >= 0]
        moved = False
        if self._has_axpy:
            is_axpy = self._table.op[self._pc[listeners]] == Op.AXPY
            moved = self._multiply(queues[is_axpy], listeners[is_axpy], now)
            queues, listeners = queues[~is_axpy], listeners[~is_axpy]
        threads = np.concatenate([listeners, self._senders])
        if not threads.size:
            return moved
        sources = np.concatenate([queues, np.full(self._senders.size, -1, dtype=queues.dtype)])
        send = self._table.send[self._pc[threads]]
        ramps = np.where(send >= 0, self._queues.ramp_up[send, self._pe[threads]], -1)
        going = self._network.wavelets.has_room(ramps)
        if self._many_threads:
            going &= self._share(threads, ramps >= 0, going, now)
        if not going.any():
            return moved
        self._stream(threads[going], sources[going], ramps[going], now)
        return True

    def _share(self, threads: Array, sends: Array, going: Array, now: int) -> Array:
        """One wavelet per cycle up the ramp; sums wait while the datapath is busy."""
        allowed = np.ones(threads.size, dtype=np.bool_)
        contenders = np.nonzero(sends & going)[0]
        allowed[contenders] = self._first_per_pe(threads[contenders])
        sums = self._table.kind[self._pc[threads]] != MOVE
        busy: Array = self._datapath_free[self._pe[threads]] > now
        return np.asarray(allowed & ~(sums & busy))

    def _stream(self, threads: Array, sources: Array, ramps: Array, now: int) -> None:
        row, pes = self._pc[threads], self._pe[threads]
        step = self._step_of[threads]
        offset = step % self._table.period[row]
        value = self._incoming(threads, sources)
        operand = self._table.operand[row]
        has_operand = operand >= 0
        if has_operand.any():
            address = pes * self._words_per_pe + operand + offset * self._table.operand_stride[row]
            stored = self._flat[np.where(has_operand, address, 0)]
            value = self._combine(row, value, stored, sources >= 0)
        store = self._table.store[row]
        kept = store >= 0
        if kept.any():
            into = offset * self._table.store_stride[row]
            if self._has_runs:
                into = self._in_runs(row, offset, into)
            self._flat[(pes * self._words_per_pe + store + into)[kept]] = value[kept]
        step += 1
        self._step_of[threads] = step
        is_last = step == self._table.words[row]
        leaving = ramps >= 0
        if leaving.any():
            flags = (self._table.last_flags[row] * is_last).astype(np.uint8)
            arrival = now + 1 + self._spec.ramp_cycles
            self._network.inject(ramps[leaving], value[leaving], flags[leaving], arrival)
            self.sent += int(leaving.sum())
        np.add.at(self.busy_cycles, pes, 1)
        self._close(threads[is_last], sources[is_last], now + 1)

    def _in_runs(self, row: Array, offset: Array, without: Array) -> Array:
        """Words from the first of a store to where this one goes, if it is made of runs."""
        run = self._table.store_run[row]
        number, rest = np.divmod(offset, np.maximum(run, 1))
        return np.where(run > 0, number * self._table.store_pitch[row] + rest, without)

    def _incoming(self, threads: Array, sources: Array) -> Array:
        value = np.zeros(threads.size, dtype=np.uint32)
        arriving = sources >= 0
        if arriving.any():
            queues = sources[arriving]
            value[arriving], flags = self._network.wavelets.pop(queues)
            if (flags & CONTROL).any():
                thread = threads[arriving][(flags & CONTROL) != 0][0]
                raise ApplianceCompilationError(
                    "a control wavelet meets a stream",
                    where=self.describe(int(thread)),
                    rule="only an Axpy ends with a control wavelet",
                    remedy="send it with to_cores=False",
                )
            self.received += int(arriving.sum())
        return value

    def _combine(self, row: Array, value: Array, stored: Array, arriving: Array) -> Array:
        kind = self._table.kind[row]
        result = np.where(arriving, value, stored)
        for number, (combine, dtype) in enumerate(self._table.kinds):
            same = kind == number
            if same.all():
                return combine_words(combine, value, stored, dtype)
            result[same] = combine_words(combine, value[same], stored[same], dtype)
        return result

    def _close(self, threads: Array, sources: Array, time: int) -> None:
        """Streams that are through."""
        if threads.size:
            queues = sources[sources >= 0]
            self._listener[queues - self._queues.num_router] = -1
            if (sources < 0).any():
                self._is_open[threads] = False
                self._senders = self._senders[self._is_open[self._senders]]
            self._proceed(threads, time)

    # Weights that trigger an axpy

    def _clear_sums(self, threads: Array) -> None:
        """No time passes: what the first weight makes is stored, not added."""
        for number, same in self._by_instruction(threads):
            axpy = self._table.instructions[number]
            assert isinstance(axpy, Axpy)
            self._memory.write_bits(
                self._pe[same], axpy.sums, np.zeros(1, dtype=axpy.sums.dtype.raw)
            )

    def _multiply(self, queues: Array, threads: Array, now: int) -> bool:
        free = self._datapath_free[self._pe[threads]] <= now
        queues, threads = queues[free], threads[free]
        if not threads.size:
            return False
        weights, flags = self._network.wavelets.pop(queues)
        self.received += threads.size
        is_end = (flags & CONTROL) != 0
        self._listener[queues - self._queues.num_router] = -1
        self._proceed(threads[is_end], now + 1)
        threads, weights = threads[~is_end], weights[~is_end]
        for number in np.unique(self._pc[threads]):
            same = self._pc[threads] == number
            axpy = self._table.instructions[number]
            assert isinstance(axpy, Axpy)
            self._add_weighted(threads[same], weights[same], axpy, now)
        return True

    def _add_weighted(self, threads: Array, weights: Array, axpy: Axpy, now: int) -> None:
        num_rows = axpy.factors.count // axpy.sums.count
        rows = (weights >> np.uint32(16)) if axpy.indexed else self._step_of[threads]
        if int(rows.max()) >= num_rows:
            raise ApplianceCompilationError(
                "a weight has no row of factors",
                where=self.describe(int(threads[0])),
                value=f"row {int(rows.max())}",
                rule=f"rows 0 to {num_rows - 1}",
            )
        pes = self._pe[threads]
        bits = weights if axpy.factors.dtype is Dtype.FP32 else weights.astype(np.uint16)
        add_weighted(self._memory, pes, bits, rows, axpy.factors, axpy.sums)
        self._step_of[threads] += 1
        cycles = weight_cycles(axpy.factors, axpy.sums, self._spec)
        self._occupy(pes, now, cycles)
        self._agenda.add(threads, now + cycles)


def _num_events(table: Table) -> int:
    used = table.count[(table.op == Op.SIGNAL) | (table.op == Op.WAIT)]
    return int(used.max(initial=-1)) + 1
