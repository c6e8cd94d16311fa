"""All routers in one cycle: each moves the head of its queues as far as wires and room allow.

A wavelet waits in its queue until every queue that it is to enter has room and every wire to them
is free; then it enters all of them at once (multicast). So nothing is ever dropped, and pressure
from a slow receiver travels back to the sender. A queue has ``queue_wavelets`` slots and one more
for each cycle of the wire into it, so an undisturbed stream moves one wavelet per cycle.

Cost follows activity: only queues that hold a wavelet are looked at.
"""

from __future__ import annotations

import numpy as np

from csnode.fabric.dtypes import Array
from csnode.fabric.routing import NUM_PORTS, Queues
from wsc.timing.hardware.fabric import FabricSpec

ADVANCE_HERE = 1
"""Moves the switch of the router that a core sends it to, and of no other."""

CONTROL = 2
"""Moves the switch of every router on its way, behind itself."""

TO_CORE = 4
"""A control wavelet that cores see."""

NEVER = 2**31 - 1


class Network:
    """The wavelets on their way. Queue -1 is a sentinel that takes everything and holds nothing."""

    def __init__(self, queues: Queues, spec: FabricSpec, num_pes: int) -> None:
        self.hops = 0
        """Wires that wavelets have passed, the energy of the HPDC'24 cost model."""
        self.filtered = 0
        """Control wavelets that ended in front of a core."""
        self._queues = queues
        self._spacing = spec.cycles_per_wavelet
        slots = queues.capacity.astype(np.int64)
        self._base = np.concatenate([np.cumsum(slots) - slots, [0]])
        self._capacity = np.append(queues.capacity, NEVER)
        self._count = np.zeros(slots.size + 1, dtype=np.int32)
        self._head = np.zeros(slots.size + 1, dtype=np.int32)
        self._listed = np.zeros(slots.size + 1, dtype=np.bool_)
        total = int(slots.sum())
        self._value = np.zeros(total, dtype=np.uint32)
        self._ready = np.zeros(total, dtype=np.int32)
        self._flags = np.zeros(total, dtype=np.uint8)
        self._link = np.append(queues.link, num_pes * (NUM_PORTS + 1))
        self._position = np.zeros(queues.last_position.size, dtype=np.int8)
        self._claim = np.zeros(num_pes * (NUM_PORTS + 1) + 1, dtype=np.int32)
        self._shared = queues.shared_links
        self._wire_free = np.zeros(self._claim.size if self._spacing > 1 else 0)
        self._next_wire = int(NEVER)
        self._routers = np.zeros(0, dtype=np.int32)
        self._cores = np.zeros(0, dtype=np.int32)
        self._woken: list[Array] = []

    @property
    def num_waiting(self) -> int:
        """Wavelets in all queues."""
        return int(self._count[:-1].sum())

    def next_ready(self, now: int) -> int:
        """The first cycle after ``now`` in which a wavelet or a wire becomes ready, or NEVER."""
        queues = np.concatenate([self._routers, self._cores])
        ready = self._ready[self._base[queues] + self._head[queues]]
        return min(int(ready[ready > now].min(initial=NEVER)), self._next_wire)

    def step(self, now: int) -> bool:
        """Move what can move in this cycle; whether anything did."""
        self._next_wire = NEVER
        queues = self._routers
        ready = self._ready[self._base[queues] + self._head[queues]] <= now
        queues = queues[ready]
        if not queues.size:
            return False
        if now & 1:  # who is first when two want one wire changes every cycle
            queues = queues[::-1]
        positions = self._position[self._queues.switch[queues]]
        targets = self._queues.targets[:, positions, queues]
        going = self._can_go(targets, now)
        queues, positions, targets = queues[going], positions[going], targets[:, going]
        if not queues.size:
            return False
        value, flags = self._pop(queues)
        moved_switch = (flags & (ADVANCE_HERE | CONTROL)) != 0
        onward = flags & ~np.uint8(ADVANCE_HERE)
        for slot, target in enumerate(targets):
            arrival = now + self._queues.delays[slot, positions, queues]
            self._enter(target, value, onward, arrival)
        if moved_switch.any():
            self._advance(self._queues.switch[queues[moved_switch]])
        self._relist()
        return True

    def arrivals(self, now: int) -> Array:
        """Queues of cores whose head is ready."""
        queues = self._cores
        return queues[self._ready[self._base[queues] + self._head[queues]] <= now]

    def peek(self, queues: Array) -> tuple[Array, Array]:
        """Value and flags at the heads of queues."""
        slots = self._base[queues] + self._head[queues]
        return self._value[slots], self._flags[slots]

    def take(self, queues: Array) -> Array:
        """Remove the heads of queues of cores."""
        value, _ = self._pop(queues)
        self._cores = self._cores[self._count[self._cores] > 0]
        self._listed[queues] = self._count[queues] > 0
        return value

    def has_room(self, queues: Array) -> Array:
        """Whether a core may inject into each queue; -1 always has room."""
        return np.asarray(self._count[queues] < self._capacity[queues])

    def inject(self, queues: Array, value: Array, flags: Array, ready: int) -> None:
        """Cores put wavelets into the queues of their ramps."""
        self._push(queues, value, flags, np.full(queues.size, ready, dtype=np.int32))
        self._relist()

    def _can_go(self, targets: Array, now: int) -> Array:
        going: Array = targets[0] >= 0  # no route at this switch position: wait for the switch
        for target in targets:
            going &= self._count[target] < self._capacity[target]
        links = self._link[targets] if self._shared or self._spacing > 1 else None
        if links is None:
            return going
        if self._spacing > 1:
            free = self._wire_free[links].max(axis=0)
            self._next_wire = int(free[going & (free >= now + 1)].min(initial=NEVER))
            going &= free < now + 1
        if self._shared:
            rank = np.nonzero(going)[0]
            wanted = links[:, rank]
            self._claim[wanted.T.ravel()] = np.repeat(rank, len(targets))  # the last one wins
            won = ((self._claim[wanted] == rank) | (targets[:, rank] < 0)).all(axis=0)
            going[rank[~won]] = False
        if self._spacing > 1:
            taken = links[:, going]
            taken = taken[taken % (NUM_PORTS + 1) < NUM_PORTS - 1]  # ramps are not that slow
            self._wire_free[taken] = np.maximum(self._wire_free[taken], now) + self._spacing
            self._wire_free[-1] = 0
        return going

    def _enter(self, target: Array, value: Array, flags: Array, arrival: Array) -> None:
        known = target >= 0
        for_core = target >= self._queues.num_router
        unseen = for_core & ((flags & (CONTROL | TO_CORE)) == CONTROL)
        self.filtered += int(unseen.sum())
        self.hops += int((known & ~for_core).sum())
        known &= ~unseen
        if not known.all():
            target, value, flags, arrival = (x[known] for x in (target, value, flags, arrival))
        self._push(target, value, flags, arrival)

    def _pop(self, queues: Array) -> tuple[Array, Array]:
        head = self._head[queues]
        slots = self._base[queues] + head
        head += 1
        head[head == self._capacity[queues]] = 0
        self._head[queues] = head
        self._count[queues] -= 1
        return self._value[slots], self._flags[slots]

    def _push(self, queues: Array, value: Array, flags: Array, ready: Array) -> None:
        count, capacity = self._count[queues], self._capacity[queues]
        tail = self._head[queues] + count
        tail -= capacity * (tail >= capacity)
        slots = self._base[queues] + tail
        self._value[slots], self._flags[slots], self._ready[slots] = value, flags, ready
        self._count[queues] = count + 1
        fresh = queues[~self._listed[queues]]
        self._listed[fresh] = True
        self._woken.append(fresh)

    def _relist(self) -> None:
        """Forget empty router queues and take up those that were filled."""
        empty = self._count[self._routers] == 0
        self._listed[self._routers[empty]] = False
        woken = np.concatenate(self._woken)
        self._woken.clear()
        is_router = woken < self._queues.num_router
        self._routers = np.concatenate([self._routers[~empty], woken[is_router]])
        self._cores = np.concatenate([self._cores, woken[~is_router]])

    def _advance(self, switches: Array) -> None:
        position = self._position[switches]
        last = self._queues.last_position[switches]
        after_last = np.where(self._queues.ring[switches], 0, last)
        self._position[switches] = np.where(position < last, position + 1, after_last)
