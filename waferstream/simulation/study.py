"""A captured step on a stated machine: points of a curve, and one of them in detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from simulator.costed_program import CostedProgram
from simulator.exploration import explore, fastest
from simulator.simulator import Prediction, Simulator
from timing.sram import data_bytes
from timing.start_up import start_up
from waferstream.simulation.layers import layer_checks
from waferstream.simulation.results import LayerCheck, Memory, Point, Starting
from wsc.core.micro_batches import FILL_WAFER, MicroBatchPolicy, explored_sizes, rounds_of
from wsc.core.program import BYTES_PER_ELEMENT, Program


@dataclass(frozen=True)
class Study:
    """A global batch of one model on clusters of one kind."""

    simulator: Simulator
    batch_size: int
    tokens_per_sample: int | None
    policy: MicroBatchPolicy

    def curve(self, counts: Sequence[int]) -> tuple[Point, ...]:
        """A point for each number of systems, in ascending order.

        Raises ConfigError where the batch cannot be shared, ApplianceResourceExhausted where the
        model fits no wafer or MemoryX does not hold it.
        """
        points = [self._point(count) for count in counts]
        first = points[0]
        alone = first.samples_per_s / first.num_csx
        return tuple(
            replace(point, efficiency=point.samples_per_s / point.num_csx / alone)
            for point in points
        )

    def micro_batch_size(self, num_csx: int) -> int:
        """Return the samples of a micro-batch, as the policy chooses them."""
        if self.policy.range is None:
            self.policy.check(self.batch_size, num_csx, simulated=True)
            largest = self.simulator.largest_micro_batch
            return self.policy.size(self.batch_size, num_csx, largest, simulated=True)
        sizes = explored_sizes(self.batch_size, self.policy.range, num_csx)
        trials = explore(self.simulator, self.batch_size, sizes, num_csx)
        return fastest(trials).micro_batch_size

    def effective_batch(self, num_csx: int) -> str:
        """Return one line with batch, micro-batches and policy."""
        program = self.costed(num_csx).program
        return self.policy.describe(
            self.batch_size, program.micro_batch_size, program.num_micro_batches
        )

    def fill_wafer_size(self, num_csx: int) -> int | None:
        """Return the size of policy ``fill_wafer``, or None unless ``auto`` takes fewer samples."""
        if self.policy.requested != "auto":
            return None
        largest = self.simulator.largest_micro_batch
        size = FILL_WAFER.size(self.batch_size, num_csx, largest, simulated=True)
        return size if size > self.micro_batch_size(num_csx) else None

    def _point(self, num_csx: int) -> Point:
        size = self.micro_batch_size(num_csx)
        prediction = self.simulator.predict(self.batch_size, size, num_csx)
        machine = self.simulator.machine
        sram_plan = self.simulator.sram_plan(size)
        return Point(
            num_csx=num_csx,
            micro_batch_size=size,
            num_rounds=rounds_of(self.batch_size, num_csx, size),
            step_ps=prediction.timing.duration_ps,
            samples_per_s=prediction.samples_per_s,
            tokens_per_s=self._tokens_per_s(prediction),
            flops_per_s=prediction.flops_per_s,
            utilisation=prediction.flops_per_s / (num_csx * machine.system.peak_flops_per_s),
            efficiency=1.0,
            attribution_ps=prediction.timing.attribution,
            sram_peak_bytes=sram_plan.peak_bytes,
            recomputed_segments=len(sram_plan.recomputed),
            swarmx_nodes=self.simulator.swarmx_nodes(num_csx),
            steps_ps=prediction.steps_ps,
        )

    def _tokens_per_s(self, prediction: Prediction) -> float | None:
        if self.tokens_per_sample is None:
            return None
        return prediction.samples_per_s * self.tokens_per_sample

    def costed(self, num_csx: int) -> CostedProgram:
        """The step as the clock walks it."""
        size = self.micro_batch_size(num_csx)
        return self.simulator.costed(self.batch_size, size, num_csx)

    def layers(self, num_csx: int) -> tuple[LayerCheck, ...]:
        """The no-stall condition in order of execution, layers that differ in number alone once."""
        size = self.micro_batch_size(num_csx)
        checks = self.simulator.streams(self.batch_size, size)
        return layer_checks(checks, size, self.simulator.largest_micro_batch)

    def memory(self, num_csx: int) -> Memory:
        """What MemoryX and the wafers hold."""
        costed, machine = self.costed(num_csx), self.simulator.machine
        tiers, stream_bytes = costed.tiers, BYTES_PER_ELEMENT[costed.program.stream_dtype]
        copies = stream_bytes * (_elements(costed.program) + _trained(costed.program))
        resident_bytes = copies + tiers.masters.num_bytes + tiers.state.num_bytes
        return Memory(
            masters_bytes=tiers.masters.num_bytes,
            gradient_sums_bytes=tiers.sums.num_bytes,
            optimizer_state_bytes=tiers.state.num_bytes,
            memoryx_tier="DRAM and flash" if tiers.flash_bytes else "DRAM",
            memoryx_flash_bytes=tiers.flash_bytes,
            sram_room_bytes=data_bytes(machine.system),
            resident_bytes=resident_bytes,
            fits_sram=resident_bytes <= machine.system.sram_bytes,
        )

    def starting(self, num_csx: int) -> Starting:
        """From the command to the first step."""
        program = self.costed(num_csx).program
        start = start_up(self.simulator.machine, _elements(program), len(program.segments))
        return Starting(**asdict(start), total_ps=start.total_ps)


def _elements(program: Program) -> int:
    return sum(spec.num_elements for spec in program.parameters)


def _trained(program: Program) -> int:
    return sum(program.parameter[name].num_elements for name in program.trained)
