"""The clock twin of the CS systems: what receiving, computing and sending cost.

The real nodes compute several micro-batches side by side on the cores they find; the emulated
system computes one after the other. All systems run the same program on the same wafer at the
same depth of the tree, so all that have a micro-batch in a round keep exactly the same time, and
this one object stands for them.

Weights are not stored first: their arrival triggers the arithmetic (cluster_interface.md, 5.6).
So a segment starts with the first byte of its first bucket and ends no sooner than the last byte of
its last one has come. Gradients leave when the segment that makes them has ended. Inputs have a
wire of their own, for their bytes are few beside the weights', and leave the input workers as these
load them.
"""

from __future__ import annotations

from collections import Counter

from timing.attribution import Attribution, Cause, waits
from timing.cost import SegmentCost
from timing.hardware import InputSpec, WaferSpec
from timing.jitter import scaled
from timing.timeline import Arrival, Occupancy, Resource, Timeline, Window, Wire
from wsc.core.program import Bucket


class NodeTiming:
    """Every CS system that has a micro-batch in the current round."""

    def __init__(
        self, wafer: WaferSpec, inputs: InputSpec, record: list[Occupancy] | None = None
    ) -> None:
        self._in = Wire("CS weights in", wafer.io_bandwidth_bytes_per_s, record=record)
        self._out = Wire("CS gradients out", wafer.io_bandwidth_bytes_per_s, record=record)
        self._loader = Timeline("CS input workers", record)
        self._input = Wire(
            "CS inputs in", inputs.bandwidth_bytes_per_s, inputs.latency_ps, record=record
        )
        self._wafer = Timeline("CS wafer", record)
        self._batches = Window(inputs.prefetch_batches)
        self._to_start: list[tuple[Cause, int]] = []  # what the next segment must wait for
        self._to_end: list[tuple[Cause, int]] = []
        self._charges_ps: Counter[str] = Counter()

    @property
    def free_ps(self) -> int:
        """When the wafer has done everything it was asked for."""
        return self._wafer.free_ps

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All that keeps time."""
        return *self.stream_resources, self._loader, self._input, self._batches

    @property
    def stream_resources(self) -> tuple[Resource, ...]:
        """Those that a segment takes."""
        return self._in, self._out, self._wafer

    @property
    def floor_ps(self) -> int:
        """Nothing that is still to be done here can start before."""
        return min(self._wafer.free_ps, self._loader.free_ps)

    def receive_batch(self, num_bytes: int, load_ps: int) -> None:
        """The next micro-batch is loaded and comes in, as early as there is room for it."""
        loaded = self._loader.occupy(self._batches.take(), load_ps, "micro-batch")
        received = self._input.carry(Arrival(*loaded), num_bytes, "micro-batch")
        self.wait("input", received.last_ps)

    def release_batch(self) -> None:
        """The wafer is done with a micro-batch and all its inputs."""
        self._batches.give_back(self.free_ps)

    def receive_weights(
        self, bucket: Bucket, payload: Arrival, updated_ps: int, activity: str = ""
    ) -> None:
        """A weight bucket of the next segment comes in; it was up to date at ``updated_ps``."""
        received = self._in.carry(payload, bucket.num_bytes, activity)
        if not self._to_end:
            self.wait("reduce", updated_ps)
            self.wait("weights", received.first_ps)
        self._to_end += ("reduce", updated_ps), ("weights", received.last_ps)

    def wait(self, cause: Cause, until_ps: int) -> None:
        """Let the next segment start no earlier."""
        self._to_start.append((cause, until_ps))

    def run(self, cost: SegmentCost, activity: str = "", factor: float = 1.0) -> None:
        """Compute the next segment as soon as what it waits for is there.

        The slowest system takes ``factor`` times as long as the cost says.
        """
        self._charge_waits(self._to_start)
        ready_ps = max((until_ps for _, until_ps in self._to_start), default=0)
        uniform, slowest = _scaled(cost, min(1.0, factor)), _scaled(cost, factor)
        _, end_ps = self._wafer.occupy(ready_ps, slowest.total_ps, activity)
        self._charges_ps["compute"] += uniform.compute_ps
        self._charges_ps["overhead"] += uniform.overhead_ps
        self._charges_ps["straggler"] += slowest.total_ps - uniform.total_ps
        self._charge_waits(self._to_end)
        last_byte_ps = max((until_ps for _, until_ps in self._to_end), default=0)
        self._wafer.occupy(max(end_ps, last_byte_ps), 0)
        self._to_start, self._to_end = [], []

    def idle_until(self, cause: Cause, until_ps: int) -> None:
        """Do nothing before ``until_ps``, for a cause."""
        self._charge_waits([(cause, until_ps)])
        self._wafer.occupy(until_ps, 0)

    def send_gradient(self, bucket: Bucket, activity: str = "") -> Arrival:
        """A gradient bucket of the last segment leaves."""
        return self._out.carry(Arrival(self.free_ps, self.free_ps), bucket.num_bytes, activity)

    def attribution(self) -> Attribution:
        """Where the time went since the last ``forget``."""
        return Attribution(**self._charges_ps)

    def charge(self, attribution: Attribution) -> None:
        """Add to the account what happened in a time that was not walked."""
        self._charges_ps.update(vars(attribution))

    def forget(self) -> None:
        """Begin a new account."""
        self._charges_ps.clear()

    def _charge_waits(self, until: list[tuple[Cause, int]]) -> None:
        for cause, duration_ps in waits(self.free_ps, until):
            self._charges_ps[cause] += duration_ps


def _scaled(cost: SegmentCost, factor: float) -> SegmentCost:
    if factor == 1.0:
        return cost
    return SegmentCost(scaled(cost.compute_ps, factor), scaled(cost.overhead_ps, factor))
