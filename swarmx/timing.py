"""The timing model of SwarmX: the time to pass the tree.

All links are equal and every switch forwards bytes as they arrive, in both directions at once,
adding at line rate (Lie, Hot Chips 34). So each direction is one wire with the bandwidth of
a link and the latency of as many hops as the tree is deep. All systems are equally deep, so one
models all. A slow switch delays the systems below it, and all others wait for these in the
reduction, so both wires run at the rate of the slowest switch.
"""

from __future__ import annotations

from swarmx.topology import topology_of
from waferstream.machine.hardware import EVEN, JitterSpec, SwarmXSpec
from waferstream.machine.jitter import slowed
from waferstream.machine.record import Record
from waferstream.machine.timeline import Arrival, Resource, Wire


class SwarmXTiming:
    """Timing of the tree: two wires, down and up, shared by the streams of all systems."""

    def __init__(
        self,
        spec: SwarmXSpec,
        num_nodes: int,
        record: Record | None = None,
        jitter: JitterSpec = EVEN,
    ) -> None:
        topology = topology_of(spec, num_nodes)
        self.latency_ps = topology.depth * spec.hop_latency_ps
        slowest = jitter.slowest("br", topology.num_switches) if jitter.stragglers else 1.0
        self.bytes_per_s = slowed(spec.link_bandwidth_bytes_per_s, slowest)
        self._down = Wire("SwarmX down", self.bytes_per_s, self.latency_ps, record)
        self._up = Wire("SwarmX up", self.bytes_per_s, self.latency_ps, record)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Every resource whose state is a time."""
        return self._down, self._up

    def broadcast(self, payload: Arrival, num_bytes: int, factor: float = 1.0) -> Arrival:
        """Return when a payload sent by MemoryX arrives at every system.

        The slowest of the links takes ``factor`` times as long as the others.
        """
        return self._down.carry(payload, num_bytes, "broadcast", factor)

    def reduce(self, payload: Arrival, num_bytes: int, factor: float = 1.0) -> Arrival:
        """Return when the sum of the payloads of all systems, sent at one time, is at MemoryX.

        The reduce order may keep sums apart that meet in one switch; the emulated tree adds all
        sums that meet and sends one payload up.
        """
        return self._up.carry(payload, num_bytes, "reduce", factor)
