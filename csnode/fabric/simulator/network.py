"""Routers of all PEs: each cycle moves the head of every queue as far as wires and capacity allow.

A wavelet waits in its queue until every queue that it is to enter has capacity and every wire to
them is free; then it enters all of them at once (multicast). So no wavelet is ever dropped, and
back-pressure from a slow receiver travels to the sender. A queue has ``queue_wavelets`` slots and
one more for each cycle of the wire into it, so an undisturbed stream moves one wavelet per cycle.

Queues are first-in-first-out lists linked through one pool of wavelets. The pool is as large as the
most wavelets that were on their way at once, so the memory that a cycle touches stays in the cache
of the host, however large the wafer. Cost follows activity: only queues that hold a wavelet are
visited.
"""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.program import NUM_PORTS, Port
from csnode.fabric.simulator.activity import Recorder
from csnode.fabric.simulator.queues import Queues
from waferstream.machine.hardware.fabric import FabricSpec

NONE = -1


ADVANCE_HERE = 1
"""Flag: moves the switch of the router that a core sends it to, and no other."""
CONTROL = 2
"""Flag: moves the switch of every router on its way, after passing."""
TO_CORE = 4
"""Flag: a control wavelet that cores receive."""
NEVER = 2**31 - 1


class Wavelets:
    """Queues of bounded length in one pool; queue -1 is a sentinel, empty and never full.

    ========================================  =======================================
    ``value`` uint32, ``flags`` uint8 [pool]  word and flags of a wavelet
    ``ready`` int64 [pool]                    cycle from which it may move on
    ``_next`` int64 [pool]                    wavelet behind it in its queue, or NONE
    ``_free`` int64 [pool]                    first ``_num_free``: unused wavelets
    ``head``, ``_tail`` int64 [queues + 1]    first and last wavelet, or NONE
    ``_capacity_left`` int32 [queues + 1]     wavelets that still fit
    ========================================  =======================================
    """

    def __init__(self, capacity: Array) -> None:
        self.value = np.zeros(0, dtype=np.uint32)
        self.flags = np.zeros(0, dtype=np.uint8)
        self.ready = np.zeros(0, dtype=np.int64)
        self.head = np.full(capacity.size + 1, NONE, dtype=np.int64)
        self._next = np.zeros(0, dtype=np.int64)
        self._tail = self.head.copy()
        self._capacity_left = np.append(capacity, np.iinfo(np.int32).max).astype(np.int32)
        self._free = np.zeros(0, dtype=np.int64)
        self._num_free = 0

    @property
    def num_waiting(self) -> int:
        """Wavelets in all queues."""
        return int(self._free.size) - self._num_free

    def has_capacity(self, queues: Array) -> Array:
        """Return whether one more wavelet fits into each queue."""
        return self._capacity_left.take(queues) > 0

    def push(self, queues: Array, value: Array, flags: Array, ready: Array | int) -> None:
        """Append one wavelet each to distinct queues."""
        wavelets = self._allocate(queues.size)
        self.value[wavelets] = value
        self.flags[wavelets] = flags
        self.ready[wavelets] = ready
        self._next[wavelets] = NONE
        is_first = self.head.take(queues) < 0
        self.head[queues[is_first]] = wavelets[is_first]
        self._next[self._tail[queues[~is_first]]] = wavelets[~is_first]
        self._tail[queues] = wavelets
        self._capacity_left[queues] -= 1

    def pop(self, queues: Array) -> tuple[Array, Array]:
        """Remove the first wavelet of distinct, non-empty queues; return values and flags."""
        wavelets = self.head.take(queues)
        self.head[queues] = self._next.take(wavelets)
        self._capacity_left[queues] += 1
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


class Network:
    """State of all routers and of the queues in front of the cores."""

    def __init__(
        self, queues: Queues, spec: FabricSpec, num_pes: int, recorder: Recorder | None = None
    ) -> None:
        self.hops = 0
        """Wires passed by wavelets: the energy of the HPDC'24 cost model."""
        self.filtered = 0
        """Control wavelets that ended in front of a core."""
        self.wavelets = Wavelets(queues.capacity)
        self._queues, self._recorder = queues, recorder
        self._spacing = spec.cycles_per_wavelet
        self._is_active = np.zeros(queues.pe.size, dtype=np.bool_)
        self._link = np.append(queues.link, num_pes * (NUM_PORTS + 1))
        self._position = np.zeros(queues.last_position.size, dtype=np.int8)
        self._claim = np.zeros(num_pes * (NUM_PORTS + 1) + 1, dtype=np.int64)
        self._shared = queues.shared_links
        self._wire_free = np.zeros(self._claim.size if self._spacing > 1 else 0)
        self._next_wire = NEVER
        self._routers = np.zeros(0, dtype=np.int64)
        self._cores = np.zeros(0, dtype=np.int64)

    def next_ready(self, now: int) -> int:
        """Return the first cycle after ``now`` in which anything becomes ready, or NEVER."""
        queues = np.concatenate([self._routers, self._cores])
        ready = self._ready(queues)
        return min(int(ready[ready > now].min(initial=NEVER)), self._next_wire)

    def step(self, now: int) -> bool:
        """Move what can move in this cycle; return whether anything did."""
        self._next_wire = NEVER
        self._routers = self._still_active(self._routers)
        queues = self._routers[self._ready(self._routers) <= now]
        if not queues.size:
            return False
        if now & 1:  # fairness: alternate which of two queues gets a wire that both need
            queues = queues[::-1]
        hops = self._queues.hop(queues, self._position)
        targets = self._queues.targets.take(hops, axis=0)
        going = self._can_go(targets, now)
        if not going.all():
            queues, hops, targets = queues[going], hops[going], targets[going]
        if not queues.size:
            return False
        value, flags = self.wavelets.pop(queues)
        if self._recorder is not None:
            self._recorder.note_passed(queues, now)
        self._enter(targets, value, flags, now, self._queues.delays.take(hops, axis=0))
        if flags.any():
            moves_switch = (flags & (ADVANCE_HERE | CONTROL)) != 0
            self._advance(self._queues.switch[queues[moves_switch]])
        return True

    def arrivals(self, now: int) -> Array:
        """Return the queues of cores whose head is ready."""
        self._cores = self._still_active(self._cores)
        return self._cores[self._ready(self._cores) <= now]

    def inject(self, queues: Array, value: Array, flags: Array, ready: int) -> None:
        """Put wavelets of cores into the queues of their ramps."""
        self.wavelets.push(queues, value, flags, ready)
        self._activate(queues)

    def _ready(self, queues: Array) -> Array:
        """Return when the heads of non-empty queues are ready."""
        return self.wavelets.ready.take(self.wavelets.head.take(queues))

    def _can_go(self, targets: Array, now: int) -> Array:
        """Return which wavelets may enter all their targets [n, fan-out] now, bool [n]."""
        going: Array = targets[:, 0] >= 0  # no target: no route until the switch moves
        for slot in range(targets.shape[1]):
            going &= self.wavelets.has_capacity(targets[:, slot])
        if self._spacing > 1:
            free = self._wire_free[self._link[targets]].max(axis=1)
            self._next_wire = int(free[going & (free >= now + 1)].min(initial=NEVER))
            going &= free < now + 1
        if self._shared:
            rank = np.nonzero(going)[0]
            wanted = self._link[targets[rank]]
            self._claim[wanted] = rank[:, None]  # if two claim a wire, the last one gets it
            won = ((self._claim[wanted] == rank[:, None]) | (targets[rank] < 0)).all(axis=1)
            going[rank[~won]] = False
        if self._spacing > 1:
            taken = self._link[targets[going]]
            taken = taken[taken % (NUM_PORTS + 1) < Port.RAMP]  # ramps run at full rate
            self._wire_free[taken] = np.maximum(self._wire_free[taken], now) + self._spacing
            self._wire_free[-1] = 0
        return going

    def _enter(self, targets: Array, value: Array, flags: Array, now: int, delays: Array) -> None:
        """Copy wavelets [n] to their targets [n, fan-out]."""
        fan_out = targets.shape[1]
        value = np.repeat(value, fan_out)
        flags = np.repeat(flags & ~np.uint8(ADVANCE_HERE), fan_out)
        target, arrival = targets.ravel(), now + delays.ravel()
        known = target >= 0
        is_router = target < self._queues.num_router
        self.hops += int(np.count_nonzero(known & is_router))
        if flags.any():
            unseen = known & ~is_router & ((flags & (CONTROL | TO_CORE)) == CONTROL)
            self.filtered += int(np.count_nonzero(unseen))
            known &= ~unseen
        if not known.all():
            target, arrival = target[known], arrival[known]
            value, flags = value[known], flags[known]
        if self._recorder is not None:
            self._recorder.note_hops(target, now, arrival)
        self.wavelets.push(target, value, flags, arrival)
        self._activate(target)

    def _activate(self, queues: Array) -> None:
        """Remember queues that now hold a wavelet."""
        fresh = queues[~self._is_active.take(queues)]
        self._is_active[fresh] = True
        is_router = fresh < self._queues.num_router
        self._routers = np.concatenate([self._routers, fresh[is_router]])
        self._cores = np.concatenate([self._cores, fresh[~is_router]])

    def _still_active(self, queues: Array) -> Array:
        filled = self.wavelets.head.take(queues) >= 0
        if filled.all():
            return queues
        self._is_active[queues[~filled]] = False
        return queues[filled]

    def _advance(self, switches: Array) -> None:
        position = self._position[switches]
        last = self._queues.last_position[switches]
        after_last = np.where(self._queues.ring[switches], 0, last)
        self._position[switches] = np.where(position < last, position + 1, after_last)
