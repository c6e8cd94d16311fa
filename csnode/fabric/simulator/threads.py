"""The threads of all PEs: which instruction each is at, and when it goes on."""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.program import Program
from csnode.fabric.simulator.agenda import Agenda
from csnode.fabric.simulator.table import Op, Table

NO_THREADS = np.zeros(0, dtype=np.int64)


class Threads:
    """Per thread: its ``pe``, and ``pc``, the row of the table that it is at.

    ``is_issued`` says whether that is a stream or Axpy that has begun, ``word`` how many words or
    weights of it are through. ``agenda`` has the threads that go on by themselves.
    """

    def __init__(self, program: Program, table: Table) -> None:
        roles = program.roles
        starts = [
            np.full(role.pes.size, start) for role, start in zip(roles, table.starts, strict=True)
        ]
        self.pe = np.concatenate([role.pes for role in roles] or [NO_THREADS])
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
        """Threads that have not reached the end of their role."""
        return np.nonzero(self._table.op[self.pc] != Op.END)[0]

    def describe(self, thread: int) -> str:
        """PE and instruction of a thread, for errors."""
        instruction = self._table.instructions[self.pc[thread]]
        return f"PE {self.pe[thread]} at {instruction}, word {self.word[thread]}"

    def proceed(self, threads: Array, time: int) -> None:
        """Go on to the next instruction at ``time``."""
        self.pc[threads] += 1
        self.is_issued[threads] = False
        self.agenda.add(threads, time)

    def by_instruction(self, threads: Array) -> list[tuple[int, Array]]:
        """Rows of the table that threads are at, and those that are there, before any goes on."""
        rows = self.pc[threads]
        return [(int(number), threads[rows == number]) for number in np.unique(rows)]

    def first_of_each_pe(self, threads: Array) -> Array:
        """Whether a thread is the first of its PE among these."""
        pes = self.pe[threads]
        rank = np.arange(threads.size)
        self._claim[pes[::-1]] = rank[::-1]
        return np.asarray(self._claim[pes] == rank)
