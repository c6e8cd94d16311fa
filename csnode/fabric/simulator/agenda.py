"""Which threads go on when: buckets of threads by cycle."""

from __future__ import annotations

import heapq

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.simulator.network import NEVER


class Agenda:
    """Entries are taken off in the order of their cycles."""

    def __init__(self) -> None:
        self._times: list[int] = []
        self._threads: dict[int, list[Array]] = {}

    @property
    def next_time(self) -> int:
        """The first entry, or NEVER."""
        return self._times[0] if self._times else NEVER

    def add(self, threads: Array, time: int) -> None:
        """Let threads go on at ``time``."""
        if threads.size:
            if time not in self._threads:
                heapq.heappush(self._times, time)
                self._threads[time] = []
            self._threads[time].append(threads)

    def due(self, now: int) -> Array:
        """Threads that go on by ``now``; they leave the agenda."""
        due: list[Array] = []
        while self._times and self._times[0] <= now:
            due += self._threads.pop(heapq.heappop(self._times))
        return np.concatenate(due) if due else np.zeros(0, dtype=np.int64)
