"""The wavelets on their way, as first-in-first-out queues linked through one pool.

The pool is as large as the most wavelets that were on their way at once, so what a cycle touches
stays in the cache of the host, however large the wafer.
"""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array

NONE = -1


class Wavelets:
    """Queues of bounded length. Queue -1 is a sentinel: it is empty and always has room."""

    def __init__(self, capacity: Array) -> None:
        self.value = np.zeros(0, dtype=np.uint32)
        self.flags = np.zeros(0, dtype=np.uint8)
        self.ready = np.zeros(0, dtype=np.int64)
        """Per wavelet of the pool: its word, its flags, the cycle from which it may move on."""
        self.head = np.full(capacity.size + 1, NONE, dtype=np.int64)
        """Per queue: its first wavelet, or NONE."""
        self._next = np.zeros(0, dtype=np.int64)
        self._tail = self.head.copy()
        self._room = np.append(capacity, np.iinfo(np.int32).max).astype(np.int32)
        self._free = np.zeros(0, dtype=np.int64)
        self._num_free = 0

    @property
    def num_waiting(self) -> int:
        """Wavelets in all queues."""
        return int(self._free.size) - self._num_free

    def has_room(self, queues: Array) -> Array:
        """Whether one more fits."""
        return self._room.take(queues) > 0

    def push(self, queues: Array, value: Array, flags: Array, ready: Array | int) -> None:
        """Put one wavelet each into queues that differ."""
        wavelets = self._allocate(queues.size)
        self.value[wavelets] = value
        self.flags[wavelets] = flags
        self.ready[wavelets] = ready
        self._next[wavelets] = NONE
        is_first = self.head.take(queues) < 0
        self.head[queues[is_first]] = wavelets[is_first]
        self._next[self._tail[queues[~is_first]]] = wavelets[~is_first]
        self._tail[queues] = wavelets
        self._room[queues] -= 1

    def pop(self, queues: Array) -> tuple[Array, Array]:
        """Value and flags of the first wavelet of queues that differ and are not empty."""
        wavelets = self.head.take(queues)
        self.head[queues] = self._next.take(wavelets)
        self._room[queues] += 1
        end = self._num_free + wavelets.size
        self._free[self._num_free : end] = wavelets
        self._num_free = end
        return self.value.take(wavelets), self.flags.take(wavelets)

    def _allocate(self, number: int) -> Array:
        if number > self._num_free:
            self._grow(number)
        self._num_free -= number
        return self._free[self._num_free : self._num_free + number].copy()

    def _grow(self, number: int) -> None:
        size = self.value.size
        added = max(number, size, 1024)
        for name in ("value", "flags", "ready", "_next", "_free"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(added, dtype=old.dtype)]))
        self._free[self._num_free : self._num_free + added] = np.arange(size, size + added)
        self._num_free += added
