"""The timing model of the CS systems: the time to receive, compute and send.

CS nodes compute several micro-batches side by side on the cores of the host; the emulated system
computes one after the other. All systems run the same program on the same wafer at the same depth
of the tree, so all that have a micro-batch in a round take exactly the same time, and one object
models all of them.

    weights in  |== bucket 0 ==|== bucket 1 ==|
    wafer          |-------- segment --------->|  starts with the first byte of bucket 0,
    gradients out                              |== gradient ==|  ends after the last byte of all

Weights are not stored first: their arrival triggers the arithmetic (Lie, Hot Chips 34).
Gradients leave when their segment has ended. So do activations for which the wafer has no room:
they share the link with weights and gradients, must have left before the next segment but one
starts, and come back from the start of the segment before the one that reads them. Inputs have a
wire of their own, since they have few bytes compared with weights, and leave the input workers as
these load them.
"""

from __future__ import annotations

from collections import Counter

from waferstream.core.program.stream_plan import Bucket
from waferstream.core.units import transfer_ps
from waferstream.machine.attribution import Attribution, Cause, waits
from waferstream.machine.cost import SegmentCost
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.jitter import scaled
from waferstream.machine.record import Record
from waferstream.machine.sram.paging import NOTHING_PAGED, PagedBytes
from waferstream.machine.timeline import Arrival, Resource, Timeline, Window, Wire

ATTRIBUTION = "CS attribution"
"""The track of a record that has the causes of all time of a busy system."""


class NodeTiming:
    """Timing of every CS system that has a micro-batch in the current round."""

    def __init__(self, machine: MachineSpec, record: Record | None = None) -> None:
        wafer, inputs = machine.system, machine.input
        self._in = Wire("CS weights in", wafer.io_bandwidth_bytes_per_s, record=record)
        self._out = Wire("CS gradients out", wafer.io_bandwidth_bytes_per_s, record=record)
        self._loader = Timeline("CS input workers", record)
        self._input = Wire(
            "CS inputs in", inputs.bandwidth_bytes_per_s, inputs.latency_ps, record=record
        )
        self._wafer = Timeline("CS wafer", record)
        self._servers = machine.activations
        self._leaving = Window(2)  # activations of a segment, while the next one runs
        self._room = Window(1)  # for activations of the next segment, as soon as one has started
        self._batches = Window(inputs.prefetch_batches)
        self._to_start: list[tuple[Cause, int]] = []  # before the next segment starts
        self._to_end: list[tuple[Cause, int]] = []  # before the next segment ends
        self._charges_ps: Counter[str] = Counter()
        self._record = record

    @property
    def free_ps(self) -> int:
        """Time at which the wafer has finished all its work."""
        return self._wafer.free_ps

    @property
    def resources(self) -> tuple[Resource, ...]:
        """Every resource whose state is a time."""
        return *self.stream_resources, self._loader, self._input, self._batches

    @property
    def stream_resources(self) -> tuple[Resource, ...]:
        """The resources that a segment occupies."""
        return self._in, self._out, self._wafer, self._leaving, self._room

    @property
    def stream_floor_ps(self) -> int:
        """Time before which no segment's work can start here."""
        return min(self._wafer.free_ps, *self._room.times)

    @property
    def floor_ps(self) -> int:
        """Time before which no future work can start here."""
        return min(self.stream_floor_ps, self._loader.free_ps)

    def receive_batch(self, num_bytes: int, load_ps: int) -> None:
        """Load and receive the next micro-batch as early as the prefetch window allows."""
        loaded = self._loader.occupy(self._batches.take(), load_ps, "load", num_bytes)
        received = self._input.carry(Arrival(*loaded), num_bytes, "input")
        self.wait("input", received.last_ps)

    def release_batch(self) -> None:
        """Free the place of a micro-batch that the wafer has finished."""
        self._batches.give_back(self.free_ps)
        if self._record is not None:
            self._record.add_sram(self.free_ps)

    def receive_weights(self, bucket: Bucket, payload: Arrival, updated_ps: int) -> None:
        """Receive a weight bucket of the next segment, last updated at ``updated_ps``."""
        received = self._in.carry(payload, bucket.moved_bytes, "broadcast")
        if not self._to_end:
            self.wait("reduce", updated_ps)
            self.wait("weights", received.first_ps)
        self._to_end += ("reduce", updated_ps), ("weights", received.last_ps)

    def wait(self, cause: Cause, until_ps: int) -> None:
        """Delay the start of the next segment until a time, for a cause."""
        self._to_start.append((cause, until_ps))

    def run(
        self, cost: SegmentCost, factor: float = 1.0, paged: PagedBytes = NOTHING_PAGED
    ) -> None:
        """Compute the next segment as soon as everything it waits for has arrived.

        The slowest system takes ``factor`` times as long as ``cost``. Of ``paged``, activations
        come back before, and others leave after it.
        """
        self._fetch(paged.fetched_bytes)
        self._charge_waits(self._to_start)
        ready_ps = max((until_ps for _, until_ps in self._to_start), default=0)
        uniform, slowest = _scaled(cost, min(1.0, factor)), _scaled(cost, factor)
        start_ps, end_ps = self._wafer.occupy(ready_ps, slowest.total_ps, "compute")
        if self._record is not None:
            self._record.add_sram(start_ps)
            self._record_parts(self._record, start_ps, uniform, slowest)
        self._charges_ps["compute"] += uniform.compute_ps
        self._charges_ps["overhead"] += uniform.overhead_ps
        self._charges_ps["straggler"] += slowest.total_ps - uniform.total_ps
        self._charge_waits(self._to_end)
        last_byte_ps = max((until_ps for _, until_ps in self._to_end), default=0)
        self._wafer.occupy(max(end_ps, last_byte_ps), 0)
        self._to_start, self._to_end = [], []
        self._room.give_back(start_ps)
        self._leave(paged.sent_bytes)

    def idle_until(self, cause: Cause, until_ps: int) -> None:
        """Keep the wafer idle until ``until_ps``, for a cause."""
        self._charge_waits([(cause, until_ps)])
        self._wafer.occupy(until_ps, 0)

    def send_gradient(self, bucket: Bucket) -> Arrival:
        """Send a gradient bucket of the last segment."""
        return self._out.carry(Arrival(self.free_ps, self.free_ps), bucket.moved_bytes, "reduce")

    def _fetch(self, num_bytes: int) -> None:
        """Bring back the activations of the next segment, and wait for the room of older ones."""
        self.wait("activations", self._leaving.take())
        room_ps = self._room.take()
        if num_bytes:
            arrived = self._in.carry(self._served(room_ps, num_bytes), num_bytes, "activations")
            self.wait("activations", arrived.last_ps)

    def _leave(self, num_bytes: int) -> None:
        """Send activations of the last segment to their servers."""
        left_ps = self.free_ps
        if num_bytes:
            sent = self._served(left_ps, num_bytes)
            left_ps = self._out.carry(sent, num_bytes, "activations").last_ps
        self._leaving.give_back(left_ps)

    def _served(self, ready_ps: int, num_bytes: int) -> Arrival:
        """Return the times at which all servers together have the first and the last byte."""
        bandwidth = self._servers.bandwidth_bytes_per_s
        return Arrival(ready_ps, ready_ps + transfer_ps(num_bytes, bandwidth))

    def attribution(self) -> Attribution:
        """Return where the time went since the last ``forget``."""
        return Attribution(**self._charges_ps)

    def charge(self, attribution: Attribution) -> None:
        """Add the attribution of segments that were not executed one by one."""
        self._charges_ps.update(vars(attribution))

    def forget(self) -> None:
        """Clear the attribution."""
        self._charges_ps.clear()

    def _charge_waits(self, until: list[tuple[Cause, int]]) -> None:
        since_ps = self.free_ps
        for cause, duration_ps in waits(since_ps, until):
            self._charges_ps[cause] += duration_ps
            if self._record is not None:
                self._record.add(ATTRIBUTION, f"wait for {cause}", since_ps, since_ps + duration_ps)
            since_ps += duration_ps

    def _record_parts(
        self, record: Record, start_ps: int, uniform: SegmentCost, slowest: SegmentCost
    ) -> None:
        """Record the causes of a segment's time, as they are charged."""
        computes_ps = start_ps + uniform.overhead_ps
        straggles_ps = computes_ps + uniform.compute_ps
        record.add(ATTRIBUTION, "overhead", start_ps, computes_ps)
        record.add(ATTRIBUTION, "compute", computes_ps, straggles_ps)
        record.add(ATTRIBUTION, "straggler", straggles_ps, start_ps + slowest.total_ps)


def _scaled(cost: SegmentCost, factor: float) -> SegmentCost:
    if factor == 1.0:
        return cost
    return SegmentCost(scaled(cost.compute_ps, factor), scaled(cost.overhead_ps, factor))
