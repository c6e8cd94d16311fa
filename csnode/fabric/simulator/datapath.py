"""The datapath of all PEs: vector ops one at a time, and weights that trigger an axpy."""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array, Dtype
from csnode.fabric.instructions import Axpy, Gather, Gemv, Vector
from csnode.fabric.memory import Memory
from csnode.fabric.simulator.table import Table
from csnode.fabric.simulator.threads import Threads
from csnode.fabric.simulator.vector import add_weighted, compute, op_cycles, weight_cycles
from timing.hardware.fabric import FabricSpec
from wsc.core.errors import ApplianceCompilationError


class Datapath:
    """What computes; ``busy_cycles`` [PEs] also counts those in which a core passes a word."""

    def __init__(self, spec: FabricSpec, table: Table, threads: Threads, memory: Memory) -> None:
        self.busy_cycles = np.zeros(memory.words.shape[0], dtype=np.int64)
        self._spec, self._table, self._threads, self._memory = spec, table, threads, memory
        self._free_at = np.zeros_like(self.busy_cycles)

    def is_free(self, threads: Array, now: int) -> Array:
        """Whether nothing is computed on the threads' PEs."""
        return np.asarray(self._free_at[self._threads.pe[threads]] <= now)

    def compute(self, threads: Array, now: int) -> None:
        """The vector ops that threads are at, or as many of them as find their PE free."""
        for number, same in self._threads.by_instruction(self._starting(threads, now)):
            op = self._table.instructions[number]
            assert isinstance(op, Vector | Gemv | Gather)
            compute(self._memory, self._threads.pe[same], op)
            cycles = op_cycles(op, self._spec)
            self._occupy(same, now, cycles)
            self._threads.proceed(same, now + cycles)

    def clear_sums(self, threads: Array) -> None:
        """Of an Axpy that begins; takes no time, since the first product is stored, not added."""
        for number, same in self._threads.by_instruction(threads):
            sums = self._axpy(number).sums
            zero = np.zeros(1, dtype=sums.dtype.raw)
            self._memory.write_bits(self._threads.pe[same], sums, zero)

    def multiply(self, threads: Array, weights: Array, now: int) -> None:
        """A weight (raw bits) for the Axpy of each thread, which then listens again."""
        for number in np.unique(self._threads.pc[threads]):
            same = self._threads.pc[threads] == number
            self._add_weighted(threads[same], weights[same], self._axpy(number), now)

    def _starting(self, threads: Array, now: int) -> Array:
        """The first thread of each PE that is free; others try again when it may be."""
        free_at = self._free_at[self._threads.pe[threads]]
        for time in np.unique(free_at[free_at > now]):
            self._threads.agenda.add(threads[free_at == time], int(time))
        threads = threads[free_at <= now]
        if not self._threads.several_per_pe:
            return threads
        first = self._threads.first_of_each_pe(threads)
        self._threads.agenda.add(threads[~first], now + 1)
        return threads[first]

    def _axpy(self, number: int) -> Axpy:
        axpy = self._table.instructions[number]
        assert isinstance(axpy, Axpy)
        return axpy

    def _add_weighted(self, threads: Array, weights: Array, axpy: Axpy, now: int) -> None:
        num_rows = axpy.factors.count // axpy.sums.count
        rows = (weights >> np.uint32(16)) if axpy.indexed else self._threads.word[threads]
        if int(rows.max()) >= num_rows:
            raise ApplianceCompilationError(
                "a weight has no row of factors",
                where=self._threads.describe(int(threads[0])),
                value=f"row {int(rows.max())}",
                rule=f"rows 0 to {num_rows - 1}",
            )
        bits = weights if axpy.factors.dtype is Dtype.FP32 else weights.astype(np.uint16)
        add_weighted(self._memory, self._threads.pe[threads], bits, rows, axpy.factors, axpy.sums)
        self._threads.word[threads] += 1
        cycles = weight_cycles(axpy.factors, axpy.sums, self._spec)
        self._occupy(threads, now, cycles)
        self._threads.agenda.add(threads, now + cycles)

    def _occupy(self, threads: Array, now: int, cycles: int) -> None:
        pes = self._threads.pe[threads]
        self.busy_cycles[pes] += cycles
        self._free_at[pes] = now + cycles
