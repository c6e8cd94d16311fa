"""The clock twin of SwarmX: what passing the tree costs.

The real switches move tensors as fast as this computer can; this twin says when the emulated tree
would have delivered them. All links are equal and every switch passes bytes on as they come, in
both directions at once, adding at line rate (cluster_interface.md, 5.4), so each direction is one
wire: link bandwidth, and the latency of as many hops as the tree is deep. All systems are equally
deep, so one of them stands for all. A slow switch holds up the systems below it, and all others
wait for these in the reduction, so both wires run at the pace of the slowest switch.
"""

from __future__ import annotations

from swarmx.topology import Tree
from timing.hardware import EVEN, JitterSpec, SwarmXSpec
from timing.jitter import slowed
from timing.timeline import Arrival, Occupancy, Resource, Wire


class SwarmXTiming:
    """Two wires, down and up, that the streams of all systems share."""

    def __init__(
        self,
        spec: SwarmXSpec,
        num_nodes: int,
        record: list[Occupancy] | None = None,
        jitter: JitterSpec = EVEN,
    ) -> None:
        tree = Tree(num_nodes, spec.fan_out)
        self.latency_ps = tree.depth * spec.hop_latency_ps
        slowest = jitter.slowest("br", tree.num_switches) if jitter.stragglers else 1.0
        self.bytes_per_s = slowed(spec.link_bandwidth_bytes_per_s, slowest)
        self._down = Wire("SwarmX down", self.bytes_per_s, self.latency_ps, record)
        self._up = Wire("SwarmX up", self.bytes_per_s, self.latency_ps, record)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All that keeps time."""
        return self._down, self._up

    def broadcast(self, payload: Arrival, num_bytes: int, activity: str = "") -> Arrival:
        """When what MemoryX sends is at every system."""
        return self._down.carry(payload, num_bytes, activity)

    def reduce(self, payload: Arrival, num_bytes: int, activity: str = "") -> Arrival:
        """When the sum of what all systems send, at the same time, is at MemoryX.

        The reduce order may keep sums apart that meet in one switch; the emulated tree adds what
        it meets and sends one payload up.
        """
        return self._up.carry(payload, num_bytes, activity)
