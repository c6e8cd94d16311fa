"""The timing model of MemoryX: the time to stream, collect and update.

The group of weight servers has four kinds of resource:

- one wire out and one in, of the group's bandwidth, which its servers share;
- per server, its share of the group's memory and processors: weights are read, 4 bytes per element,
  before they stream; adding a gradient moves 3 x 4 bytes per element (sum and gradient read, sum
  written), an update reads the gradient and reads and writes master and optimizer state. The slower
  of moving and computing counts; with AdamW, 15 operations on 28 bytes, that is moving;
- per server, its share of the group's flash, where the model has outgrown DRAM (memoryx.tiers):
  weights are read before they stream, what an addition or an update writes is read and written;
- per server, two windows of credits: how far weights run ahead of the systems that use them, and
  how many gradients the systems may have made that are not added yet.

A parameter is streamed again as soon as its own update is done (Lie, Hot Chips 34).

Memory and flash have two ports each: one to read ahead, one for additions and updates.

    memory out   |read w0|read w1|read w2|...        reads ahead, as far as credits allow
    memory            |add g0|update w0|add g1|...   additions and updates, in schedule order

A timeline does its work in the order of the schedule: on one common port, a read would wait behind
updates that are earlier in the schedule and later in time. Each port has the full bandwidth, and
contention between the two is not modelled. A machine with twice the bandwidth, shared, could do
all that is reported, so no step can take more than twice the reported time. Mostly the error is
far smaller: bf16 weights that fill the link read an eighth of the memory bandwidth of the default
machine, and additions and updates beside them would take up to 8/7 as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memoryx.optim.cost import UpdateCost
from memoryx.tiers import Tiers
from waferstream.core.program.program import MASTER_BYTES
from waferstream.core.program.stream_plan import GRADIENT_BYTES, Bucket
from waferstream.core.roles.names import server_name
from waferstream.core.units import transfer_ps
from waferstream.machine.hardware import EVEN, JitterSpec, MemoryXSpec
from waferstream.machine.jitter import slowed
from waferstream.machine.record import Record
from waferstream.machine.timeline import Arrival, Resource, Stamps, Timeline, Window, Wire


class MemoryXTiming:
    """Timing of all weight servers of a cluster.

    A credit reaches the other end ``credit_latency_ps`` after it was returned. A layer waits for
    the buckets of all servers, so the wires run at the rate of the slowest server of ``jitter``.
    """

    def __init__(
        self,
        spec: MemoryXSpec,
        num_servers: int,
        credit_latency_ps: int,
        record: Record | None = None,
        jitter: JitterSpec = EVEN,
    ) -> None:
        bytes_per_s = slowed(spec.bandwidth_bytes_per_s, jitter.slowest("wgt", num_servers))
        self._out = Wire("MemoryX out", bytes_per_s, record=record)
        self._in = Wire("MemoryX in", bytes_per_s, record=record)
        self._servers = [
            _Server(spec, index, num_servers * jitter.of(server_name(index)), record)
            for index in range(num_servers)
        ]
        self._credit_latency_ps = credit_latency_ps
        self._updated = Stamps()
        self._streaming: set[int] = set()  # servers with weights to stream
        self._tiers = Tiers()

    @property
    def free_ps(self) -> int:
        """Time at which all servers have finished additions and updates; streams do not count."""
        return max(server.free_ps for server in self._servers)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Every resource whose state is a time."""
        return *self.stream_resources, self._updated

    @property
    def stream_resources(self) -> tuple[Resource, ...]:
        """The resources that the streams of a segment occupy."""
        servers = (resource for server in self._servers for resource in server.resources)
        return self._out, self._in, *servers

    @property
    def floor_ps(self) -> int:
        """Time before which no future stream can be read."""
        reads_flash = self._tiers.masters.flash_bytes > 0
        ports = (self._servers[index].first_port(reads_flash) for index in self._streaming)
        return min((port.free_ps for port in ports), default=self._out.free_ps)

    def serve(self, names: Sequence[str], weights: Iterable[Bucket]) -> None:
        """Add the parameters of a program and the buckets in which they stream."""
        self._updated.add(names)
        self._streaming.update(bucket.server for bucket in weights)

    def place_model(self, tiers: Tiers) -> None:
        """Place the model in these tiers; by default all of it is in DRAM."""
        self._tiers = tiers

    def updated_ps(self, names: tuple[str, ...]) -> int:
        """Return when the last of these parameters was updated; 0 if none ever was."""
        return self._updated.last_of(names)

    def are_updated(self, buckets: Iterable[Bucket], by_ps: int) -> bool:
        """Return whether every parameter of these buckets is updated by a time."""
        if self._updated.latest_ps <= by_ps:
            return True
        return all(self.updated_ps(bucket.names) <= by_ps for bucket in buckets)

    def stream(self, bucket: Bucket) -> Arrival:
        """Send a weight bucket as soon as it is up to date and a credit is free."""
        server = self._servers[bucket.server]
        ready_ps = max(server.weights.take(), self.updated_ps(bucket.names))
        masters = bucket.moved_elements * MASTER_BYTES
        read = server.read(ready_ps, masters, self._tiers.masters.in_flash(masters))
        return self._out.carry(read, bucket.moved_bytes, "broadcast")

    def release(self, bucket: Bucket, dropped_ps: int) -> None:
        """Return the credit of a weight bucket that the systems have dropped."""
        self._servers[bucket.server].weights.give_back(dropped_ps + self._credit_latency_ps)

    def admit(self, bucket: Bucket) -> int:
        """Return from when on a system may produce a gradient bucket."""
        return self._servers[bucket.server].gradients.take()

    def collect(self, bucket: Bucket, payload: Arrival) -> int:
        """Add a gradient bucket to the sum over rounds; return when that is done."""
        received = self._in.carry(payload, bucket.moved_bytes, "reduce")
        server, elements = self._servers[bucket.server], bucket.moved_elements
        added_ps = server.work(
            "sum",
            received.last_ps,
            dram_bytes=elements * 3 * GRADIENT_BYTES,
            flops=elements,
            flash_bytes=2 * self._tiers.sums.in_flash(elements * GRADIENT_BYTES),
        )
        server.gradients.give_back(added_ps + self._credit_latency_ps)
        return added_ps

    def update(self, bucket: Bucket, ready_ps: int, cost: UpdateCost, mask_bytes: int = 0) -> None:
        """Apply the optimizer to the parameters of a gradient bucket.

        The sum of gradients is read, masters and state are read and written; changes of masks move
        ``mask_bytes`` more (memoryx.sparsity.step_sparsity).
        """
        elements, tiers = bucket.num_elements, self._tiers
        sums, masters = elements * GRADIENT_BYTES, elements * MASTER_BYTES
        state = elements * cost.state_bytes
        done_ps = self._servers[bucket.server].work(
            "update",
            ready_ps,
            dram_bytes=sums + 2 * (masters + state) + mask_bytes,
            flops=elements * cost.flops,
            flash_bytes=tiers.sums.in_flash(sums)
            + 2 * (tiers.masters.in_flash(masters) + tiers.state.in_flash(state)),
        )
        self._updated.stamp(bucket.changed, done_ps)

    def update_like(self, bucket: Bucket, like: Bucket, later_ps: int) -> None:
        """Record that a bucket was updated ``later_ps`` after another one."""
        self._updated.stamp(bucket.changed, self.updated_ps(like.names) + later_ps)


class _Server:
    """One weight server; its rates are those of the group divided by ``shares``."""

    def __init__(self, spec: MemoryXSpec, index: int, shares: float, record: Record | None) -> None:
        memory_bytes_per_s = slowed(spec.memory_bandwidth_bytes_per_s, shares)
        flash_bytes_per_s = slowed(spec.flash_bandwidth_bytes_per_s, shares)
        self._memory = Timeline(f"MemoryX memory {index}", record)
        self._memory_out = Wire(f"MemoryX memory out {index}", memory_bytes_per_s, record=record)
        self._memory_bytes_per_s = memory_bytes_per_s
        self._flops_per_s = slowed(spec.flops_per_s, shares)
        self._flash_back = Timeline(f"MemoryX flash back {index}", record)
        self._flash_out = Wire(f"MemoryX flash out {index}", flash_bytes_per_s, record=record)
        self._flash_bytes_per_s = flash_bytes_per_s
        self.weights = Window(spec.prefetch_buckets)
        self.gradients = Window(spec.drain_buckets)

    @property
    def free_ps(self) -> int:
        """Time at which all work except streaming is done."""
        return max(self._memory.free_ps, self._flash_back.free_ps)

    @property
    def resources(self) -> tuple[Resource, ...]:
        return (
            self._memory,
            self._memory_out,
            self._flash_back,
            self._flash_out,
            self.weights,
            self.gradients,
        )

    def first_port(self, from_flash: bool) -> Wire:
        """Return the port that a read occupies first."""
        return self._flash_out if from_flash else self._memory_out

    def read(self, ready_ps: int, dram_bytes: int, flash_bytes: int) -> Arrival:
        """Read a bucket's masters ahead; the part in flash passes through DRAM."""
        masters = Arrival(ready_ps, ready_ps)
        if flash_bytes:
            masters = self._flash_out.carry(masters, flash_bytes, "read")
        return self._memory_out.carry(masters, dram_bytes, "cast")

    def work(
        self, activity: str, ready_ps: int, *, dram_bytes: int, flops: int, flash_bytes: int
    ) -> int:
        """Process a bucket at the rate of the slowest of memory, compute and flash.

        Returns:
            When the work ends, in ps.
        """
        moving_ps = transfer_ps(dram_bytes, self._memory_bytes_per_s)
        computing_ps = transfer_ps(flops, self._flops_per_s)
        _, end_ps = self._memory.occupy(
            ready_ps, max(moving_ps, computing_ps), activity, dram_bytes
        )
        if flash_bytes:
            passing_ps = transfer_ps(flash_bytes, self._flash_bytes_per_s)
            _, back_ps = self._flash_back.occupy(ready_ps, passing_ps, activity, flash_bytes)
            end_ps = max(end_ps, back_ps)
        return end_ps
