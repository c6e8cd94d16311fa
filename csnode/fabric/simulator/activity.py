"""What cores and wires do in a run, cycle by cycle."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.program import NUM_PORTS, Port
from csnode.fabric.simulator.queues import Queues


class Work(IntEnum):
    """What a core does in a cycle in which it is busy."""

    COMPUTE = 0
    """It multiplies and adds, or runs another vector op in memory."""
    RECEIVE = 1
    """It takes a word from the fabric, stores it or adds it to one in memory."""
    SEND = 2
    """It sends a word from memory."""
    PASS_ON = 3
    """It takes a word, adds one from memory, and sends the sum."""


@dataclass(frozen=True)
class History:
    """Work of all cores and ways of all wavelets of a run, in the order in which they begin.

    ``work`` int64 [n, 4]: PE, first cycle, cycles, ``Work``. ``hops`` int64 [m, 6]: PE whose router
    the wavelet enters, ``Port`` by which it does, colour, cycle of its departure, cycle of its
    arrival, and cycle in which that router passes it on, later if it had to wait.
    """

    work: Array
    hops: Array

    def busy_cycles(self, num_pes: int) -> Array:
        """Return the cycles in which each core worked, int64 [PEs]."""
        return np.bincount(self.work[:, 0], self.work[:, 2], num_pes).astype(np.int64)


class Recorder:
    """The history of a run while it is recorded."""

    def __init__(self, queues: Queues, colours: list[int], num_pes: int) -> None:
        self._queues, self._colours, self._num_pes = queues, np.array(colours), num_pes
        self._work: list[Array] = []
        self._hops: list[Array] = []
        self._passed: list[Array] = []

    def note_work(self, pes: Array, now: int, cycles: int, work: Array | Work) -> None:
        """Note that cores begin to work now, for some cycles."""
        columns = np.broadcast_arrays(pes, now, cycles, work)
        self._work.append(np.stack(columns, axis=1).astype(np.int64))

    def note_hops(self, queues: Array, now: int, arrivals: Array) -> None:
        """Note that wavelets leave now for queues of routers; ways into cores are left out."""
        outside = queues < self._queues.num_router
        columns = np.broadcast_arrays(queues[outside], now, arrivals[outside])
        self._hops.append(np.stack(columns, axis=1).astype(np.int64))

    def note_passed(self, queues: Array, now: int) -> None:
        """Note that routers pass on the first wavelets of their queues now."""
        columns = np.broadcast_arrays(queues, now)
        self._passed.append(np.stack(columns, axis=1).astype(np.int64))

    def history(self) -> History:
        """Return the history of the run, once it has ended and all queues are empty."""
        work = np.concatenate([np.zeros((0, 4), dtype=np.int64), *self._work])
        hops = np.concatenate([np.zeros((0, 3), dtype=np.int64), *self._hops])
        passed = np.concatenate([np.zeros((0, 2), dtype=np.int64), *self._passed])
        pes, ports = np.divmod(self._queues.link, NUM_PORTS + 1)
        passed = passed[ports[passed[:, 0]] != Port.RAMP]
        # Queues are first-in-first-out, so the n-th to enter one is the n-th to leave it.
        entered = np.argsort(hops[:, 0], kind="stable")
        onward = np.empty(len(hops), dtype=np.int64)
        onward[entered] = passed[np.argsort(passed[:, 0], kind="stable"), 1]
        queues = hops[:, 0]
        colours = self._colours[self._queues.switch[queues] // self._num_pes]
        where = np.stack([pes[queues], ports[queues], colours, hops[:, 1], hops[:, 2]], axis=1)
        return History(work, np.concatenate([where, onward[:, None]], axis=1))
