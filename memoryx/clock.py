"""The clock twin of MemoryX: what streaming, collecting and updating cost.

The real weight servers compute updates as fast as this computer can; this twin says when the
emulated group of servers would have done so. Three kinds of resource:

- one wire out and one in, of the group's bandwidth, which its servers share;
- per server, its share of the group's memory bandwidth: adding a gradient moves 3 x 4 bytes per
  element (sum and gradient read, sum written), an update reads the gradient and reads and writes
  master and optimizer state. Both are bound by memory: AdamW does about 15 operations on 28 bytes;
- per server, two windows of credits: how far weights run ahead of the systems that use them, and
  how many gradients the systems may have made that are not added yet.

A parameter is streamed again as soon as its own update is done (cluster_interface.md, 5.2).
"""

from __future__ import annotations

from collections.abc import Sequence

from wsc.core.program import GRADIENT_BYTES, Shard
from wsc.core.units import transfer_ps
from wsc.timing.hardware import MemoryXSpec
from wsc.timing.timeline import Arrival, Occupancy, Resource, Stamps, Timeline, Window, Wire

MASTER_BYTES = 4  # masters are fp32


class MemoryXClock:
    """All weight servers of a cluster.

    A credit reaches the other end ``credit_latency_ps`` after it was given back.
    """

    def __init__(
        self,
        spec: MemoryXSpec,
        num_servers: int,
        credit_latency_ps: int,
        record: list[Occupancy] | None = None,
    ) -> None:
        servers = range(num_servers)
        self._out = Wire("MemoryX out", spec.bandwidth_bytes_per_s, record=record)
        self._in = Wire("MemoryX in", spec.bandwidth_bytes_per_s, record=record)
        self._memory = [Timeline(f"MemoryX memory {server}", record) for server in servers]
        self._memory_bytes_per_s = max(1, spec.memory_bandwidth_bytes_per_s // num_servers)
        self._weight_windows = [Window(spec.prefetch_shards) for _ in servers]
        self._gradient_windows = [Window(spec.drain_shards) for _ in servers]
        self._credit_latency_ps = credit_latency_ps
        self._updated = Stamps()

    @property
    def free_ps(self) -> int:
        """When all servers have done everything they were asked for."""
        return max(memory.free_ps for memory in self._memory)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All that keeps time."""
        windows = (*self._weight_windows, *self._gradient_windows)
        return self._out, self._in, *self._memory, *windows, self._updated

    @property
    def floor_ps(self) -> int:
        """Nothing that is still to be streamed can leave before."""
        return self._out.free_ps

    def serve(self, names: Sequence[str]) -> None:
        """Hold parameters with these names."""
        self._updated.add(names)

    def updated_ps(self, names: tuple[str, ...]) -> int:
        """When the last of these parameters was updated; 0 if none ever was."""
        return max((self._updated[name] for name in names), default=0)

    def stream(self, shard: Shard, activity: str = "") -> Arrival:
        """Send a weight shard as soon as it is up to date and a system has room for it."""
        opens_ps = self._weight_windows[shard.server].take()
        ready_ps = max(opens_ps, self.updated_ps(shard.names))
        return self._out.carry(Arrival(ready_ps, ready_ps), shard.num_bytes, activity)

    def release(self, shard: Shard, dropped_ps: int) -> None:
        """The systems have dropped a weight shard."""
        returned_ps = dropped_ps + self._credit_latency_ps
        self._weight_windows[shard.server].give_back(returned_ps)

    def admit(self, shard: Shard) -> int:
        """From when on a system may make a gradient shard."""
        return self._gradient_windows[shard.server].take()

    def collect(self, shard: Shard, payload: Arrival, activity: str = "") -> int:
        """Add a gradient shard to the sum over rounds; returns when that is done."""
        received = self._in.carry(payload, shard.num_bytes, activity)
        added_ps = self._move(shard, received.last_ps, 3 * GRADIENT_BYTES, activity)
        self._gradient_windows[shard.server].give_back(added_ps + self._credit_latency_ps)
        return added_ps

    def update(
        self, shard: Shard, ready_ps: int, state_bytes_per_element: int, activity: str = ""
    ) -> None:
        """Apply the optimizer to the parameters of a gradient shard."""
        update_bytes = GRADIENT_BYTES + 2 * (MASTER_BYTES + state_bytes_per_element)
        done_ps = self._move(shard, ready_ps, update_bytes, activity)
        for name in shard.names:
            self._updated[name] = done_ps

    def _move(self, shard: Shard, ready_ps: int, bytes_per_element: int, activity: str) -> int:
        """Let the server that owns a shard go over it once; returns when it is through."""
        num_bytes = shard.num_elements * bytes_per_element
        duration_ps = transfer_ps(num_bytes, self._memory_bytes_per_s)
        return self._memory[shard.server].occupy(ready_ps, duration_ps, activity)[1]
